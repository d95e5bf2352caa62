/* SPDX-License-Identifier: GPL-2.0-only OR Linux-OpenIB */
/*
 * Where the address of the other host goes: from a name or an IP address to a queue pair that can send to it.
 *
 *   connect_rc DESTINATION [SOURCE]               prints what a queue pair is set to, and makes an address handle
 *   connect_rc -q QPN -p PSN DESTINATION [SOURCE] makes a reliable connection to that queue pair of the destination
 *
 * The service knows how to get to a host, not to which of its queue pairs. Each side needs the number of the other's
 * queue pair and the number that the other's packets start with; the two tell each other over any connection that they
 * have, a TCP socket for instance. (librdmacm does that with messages of its own.)
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/ib_acm.h>

/* Our own packets start with this number; a program that connects more than once takes a random one. */
#define OUR_PSN 0x1234

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	return 1;
}

/* The path to a destination, an IP address or a name. */
static int find(char *source, char *destination, struct ib_acm_dev_addr *dev, struct ibv_ah_attr *ah,
		struct ib_acm_resolve_data *data)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct ib_path_record path;
	int result;

	if (source) {
		/* A source of either kind is easiest as text. */
		result = ib_acm_resolve(source, destination, 0, &path, NULL);
		return result ? result : ib_acm_convert_from_path(&path, dev, ah, data);
	}
	if (inet_pton(AF_INET, destination, &in.sin_addr) == 1)
		return ib_acm_resolve_ip(NULL, (struct sockaddr *)&in, dev, ah, data);
	if (inet_pton(AF_INET6, destination, &in6.sin6_addr) == 1)
		return ib_acm_resolve_ip(NULL, (struct sockaddr *)&in6, dev, ah, data);
	return ib_acm_resolve_name(NULL, destination, dev, ah, data);
}

/* The path starts at a port of one device; a queue pair on any other is not on it. */
static struct ibv_context *open_device(uint64_t guid)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	int i;

	for (i = 0; list && list[i] && !context; i++)
		if (ibv_get_device_guid(list[i]) == guid)
			context = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return context;
}

/*
 * How long a queue pair waits for an acknowledgement, as an exponent: 4.096 us * 2^n. The packet crosses the fabric, the
 * peer takes its time, the acknowledgement crosses the fabric: 2 * 2^lifetime + 2^delay, rounded up to a power of two.
 * Strictly the delay is the peer's, which it can send along with its queue pair's number; adapters are much alike.
 * Never 0, which means for ever; the field has five bits.
 */
static uint8_t ack_timeout(uint8_t packet_lifetime, uint8_t ack_delay)
{
	int round_trip = packet_lifetime + 1, n = (round_trip > ack_delay ? round_trip : ack_delay) + 1;

	return n < 31 ? n : 31;
}

/* What does not depend on the peer: the end of the path on this host. */
static void to_init(struct ibv_qp_attr *attr, const struct ib_acm_dev_addr *dev)
{
	memset(attr, 0, sizeof(*attr));
	attr->qp_state = IBV_QPS_INIT;
	attr->port_num = dev->port_num;
	attr->pkey_index = dev->pkey_index; /* an index of the port's table, never the key itself */
	attr->qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	printf("INIT  port_num %u, pkey_index %u\n", attr->port_num, attr->pkey_index);
}

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS)

/*
 * Here goes the address: a queue pair of a reliable connection has one peer, and all that is posted to it later goes
 * there. A work request has no address of its own.
 */
static void to_rtr(struct ibv_qp_attr *attr, const struct ibv_ah_attr *ah, const struct ib_acm_resolve_data *data,
		   uint32_t qpn, uint32_t psn)
{
	memset(attr, 0, sizeof(*attr));
	attr->qp_state = IBV_QPS_RTR;
	attr->ah_attr = *ah; /* destination LID, service level, rate, and the global route if there is one */
	attr->path_mtu = data->mtu; /* what every link of the path can carry; both sides take the same */
	attr->dest_qp_num = qpn;
	attr->rq_psn = psn; /* the peer's sq_psn */
	/* RDMA reads of the peer's that we serve at a time; the peer's max_rd_atomic may not be more. */
	attr->max_dest_rd_atomic = data->resp_resources < 16 ? data->resp_resources : 16;
	attr->min_rnr_timer = 12; /* 0.64 ms until the peer tries again where no receive is posted */
	printf("RTR   dlid %u, sl %u, src_path_bits %u, static_rate %u, port_num %u, is_global %u\n", ah->dlid, ah->sl,
	       ah->src_path_bits, ah->static_rate, ah->port_num, ah->is_global);
	if (ah->is_global) {
		char text[INET6_ADDRSTRLEN];

		printf("      dgid %s, sgid_index %u, hop_limit %u, flow_label %u, traffic_class %u\n",
		       inet_ntop(AF_INET6, ah->grh.dgid.raw, text, sizeof(text)), ah->grh.sgid_index, ah->grh.hop_limit,
		       ah->grh.flow_label, ah->grh.traffic_class);
	}
	printf("      path_mtu %u (%u bytes), dest_qp_num %u, rq_psn %u, max_dest_rd_atomic %u, min_rnr_timer %u\n",
	       attr->path_mtu, 128U << attr->path_mtu, qpn, psn, attr->max_dest_rd_atomic, attr->min_rnr_timer);
}

#define RTR_MASK                                                                                                       \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |    \
	 IBV_QP_MIN_RNR_TIMER)

static void to_rts(struct ibv_qp_attr *attr, const struct ib_acm_resolve_data *data, uint8_t ack_delay)
{
	memset(attr, 0, sizeof(*attr));
	attr->qp_state = IBV_QPS_RTS;
	attr->timeout = ack_timeout(data->packet_lifetime, ack_delay);
	attr->retry_cnt = 7; /* times that a packet is sent again before the queue pair fails */
	attr->rnr_retry = 7; /* for ever */
	attr->sq_psn = OUR_PSN;
	/* RDMA reads of ours at a time; not more than the peer's max_dest_rd_atomic, which it has to tell. */
	attr->max_rd_atomic = data->init_depth < 16 ? data->init_depth : 16;
	printf("RTS   timeout %u (packet lifetime %u), retry_cnt %u, rnr_retry %u, sq_psn %u, max_rd_atomic %u\n",
	       attr->timeout, data->packet_lifetime, attr->retry_cnt, attr->rnr_retry, attr->sq_psn,
	       attr->max_rd_atomic);
}

#define RTS_MASK                                                                                                       \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)

/*
 * Datagrams are addressed one by one. The address handle is made once, and named by each work request:
 *
 *   wr.wr.ud.ah = handle; wr.wr.ud.remote_qpn = qpn; wr.wr.ud.remote_qkey = qkey;
 */
static int datagrams(struct ibv_pd *pd, struct ibv_ah_attr *ah)
{
	struct ibv_ah *handle = ibv_create_ah(pd, ah);

	if (!handle)
		return fail("ibv_create_ah");
	printf("UD    an address handle\n");
	return ibv_destroy_ah(handle) ? fail("ibv_destroy_ah") : 0;
}

static int modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, const char *what)
{
	/* The error is what it returns. */
	errno = ibv_modify_qp(qp, attr, mask);
	return errno ? fail(what) : 0;
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr attr[3];
	struct ib_acm_resolve_data data;
	struct ibv_device_attr device;
	struct ib_acm_dev_addr dev;
	struct ibv_context *context;
	struct ibv_ah_attr ah;
	uint32_t qpn = 0, psn = 0;
	struct ibv_qp *qp;
	struct ibv_pd *pd;
	int option, result;

	while ((option = getopt(argc, argv, "q:p:")) != -1) {
		switch (option) {
		case 'q':
			qpn = strtoul(optarg, NULL, 0) & 0xffffff;
			break;
		case 'p':
			psn = strtoul(optarg, NULL, 0) & 0xffffff;
			break;
		default:
			return 2;
		}
	}
	if (optind == argc)
		return 2;

	result = find(argv[optind + 1], argv[optind], &dev, &ah, &data);
	if (result) {
		fprintf(stderr, "%s: %s\n", argv[optind], result > 0 ? ib_acm_status_str(result) : strerror(errno));
		return 1;
	}
	context = open_device(dev.guid);
	if (!context)
		return fail("ibv_open_device");
	errno = ibv_query_device(context, &device);
	if (errno)
		return fail("ibv_query_device");
	printf("path  from port %u of device %016" PRIx64 "\n", dev.port_num, be64toh(dev.guid));
	to_init(&attr[0], &dev);
	to_rtr(&attr[1], &ah, &data, qpn, psn);
	to_rts(&attr[2], &data, device.local_ca_ack_delay);

	pd = ibv_alloc_pd(context);
	if (!pd)
		return fail("ibv_alloc_pd");
	result = datagrams(pd, &ah);
	if (!result && qpn) {
		init.send_cq = init.recv_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
		if (!init.send_cq)
			return fail("ibv_create_cq");
		init.cap.max_send_wr = init.cap.max_recv_wr = 8;
		init.cap.max_send_sge = init.cap.max_recv_sge = 1;
		qp = ibv_create_qp(pd, &init);
		result = qp ? modify(qp, &attr[0], INIT_MASK, "to INIT") || modify(qp, &attr[1], RTR_MASK, "to RTR") ||
				      modify(qp, &attr[2], RTS_MASK, "to RTS") :
			      fail("ibv_create_qp");
		if (!result)
			printf("RC    queue pair %u sends to queue pair %u\n", qp->qp_num, qpn);
		if (qp)
			ibv_destroy_qp(qp);
		ibv_destroy_cq(init.send_cq);
	}
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	return result;
}
