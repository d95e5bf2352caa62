/*
 * Asks and watches through libibumad and libibverbs, one thing per run:
 *   path GID [timeout retries pkey_index qkey]   asks the SA for a path: prints "status= mad= dlid= slid= ms="
 *   events N                                     prints N asynchronous events
 *   hangup                                       opens everything, prints "ready", then which descriptors hung up
 *   netlink N                                    prints who sent each of N messages to the local service group
 *   notices N                                    subscribes to the SA's notices, prints the numbers of N traps
 *   hold                                         has the SA's reports for itself, prints "ready" or "refused", and waits
 *   list                                         prints the devices and their ports
 */
#include <arpa/inet.h>
#include <endian.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <linux/netlink.h>

#include <infiniband/umad.h>
#include <infiniband/verbs.h>

static struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;

	if (!context) {
		fprintf(stderr, "no device\n");
		exit(1);
	}
	ibv_free_device_list(list);
	return context;
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int path(int argc, char **argv)
{
	int timeout = argc > 3 ? atoi(argv[3]) : 5000, retries = argc > 4 ? atoi(argv[4]) : 0;
	int pkey_index = argc > 5 ? atoi(argv[5]) : 0, length = 256, agent, port;
	unsigned qkey = argc > 6 ? strtoul(argv[6], NULL, 0) : 0x80010000;
	struct ibv_context *context = open_first();
	struct ibv_port_attr attr;
	union ibv_gid sgid;
	uint8_t *umad, *mad;
	long begin;

	if (ibv_query_port(context, 1, &attr) || ibv_query_gid(context, 1, 0, &sgid))
		return 1;
	port = umad_open_port(ibv_get_device_name(context->device), 1);
	agent = umad_register(port, 3, 2, 0, NULL);
	if (port < 0 || agent < 0)
		return 1;
	umad = umad_alloc(1, umad_size() + 256);
	mad = umad_get_mad(umad);
	mad[0] = 1, mad[1] = 3, mad[2] = 2, mad[3] = 1;
	mad[15] = 42;
	mad[17] = 0x35;
	mad[48 + 7] = 0x0c; /* component mask: DGID, SGID */
	if (inet_pton(AF_INET6, argv[2], mad + 56 + 8) != 1)
		return 2;
	memcpy(mad + 56 + 24, &sgid, 16);
	umad_set_addr(umad, attr.sm_lid, 1, attr.sm_sl, qkey);
	umad_set_pkey(umad, pkey_index);
	begin = now_ms();
	if (umad_send(port, agent, umad, 256, timeout, retries))
		return 1;
	if (umad_recv(port, umad, &length, 20000) != agent)
		return 3;
	if (mad[15] != 42)
		return 4;
	printf("status=%d mad=0x%02x%02x dlid=%u slid=%u ms=%ld\n", umad_status(umad), mad[4], mad[5],
	       mad[56 + 40] << 8 | mad[56 + 41], mad[56 + 42] << 8 | mad[56 + 43], now_ms() - begin);
	umad_unregister(port, agent);
	umad_close_port(port);
	return ibv_close_device(context);
}

static int notices(int count)
{
	struct ibv_context *context = open_first();
	long reports[16 / sizeof(long)] = { 1 << 6 };
	int port = umad_open_port(ibv_get_device_name(context->device), 1), length = 256;
	int agent = umad_register(port, 3, 2, 0, reports);
	uint8_t *umad = umad_alloc(1, umad_size() + 256), *mad = umad_get_mad(umad), *inform = mad + 56;
	struct ibv_port_attr attr;

	if (agent < 0 || ibv_query_port(context, 1, &attr))
		return 1;
	mad[0] = 1, mad[1] = 3, mad[2] = 2, mad[3] = 2;
	mad[15] = 43;
	mad[17] = 3;
	memset(inform + 16, 0xff, 2); /* all LIDs */
	inform[22] = 1;		      /* generic */
	inform[23] = 1;		      /* subscribe */
	memset(inform + 24, 0xff, 4); /* all types and traps */
	inform[30] = 1;		      /* to QP 1 */
	memset(inform + 33, 0xff, 3); /* of all producers */
	umad_set_addr(umad, attr.sm_lid, 1, attr.sm_sl, 0x80010000);
	if (umad_send(port, agent, umad, 256, 1000, 2) || umad_recv(port, umad, &length, 10000) != agent ||
	    umad_status(umad) || mad[4] || mad[5])
		return 3;
	printf("ready\n");
	fflush(stdout);
	while (count-- > 0) {
		length = 256;
		if (umad_recv(port, umad, &length, 20000) != agent || mad[3] != 6 || mad[17] != 2)
			return 4;
		printf("%d\n", inform[4] << 8 | inform[5]);
		fflush(stdout);
		mad[3] = 0x86;
		umad_set_addr(umad, attr.sm_lid, 1, attr.sm_sl, 0x80010000);
		if (umad_send(port, agent, umad, 256, 0, 0))
			return 5;
	}
	return 0;
}

static int hold(void)
{
	struct ibv_context *context = open_first();
	long reports[16 / sizeof(long)] = { 1 << 6 };
	int port = umad_open_port(ibv_get_device_name(context->device), 1);
	int agent = umad_register(port, 3, 2, 0, reports);
	int other = umad_register(port, 3, 2, 0, NULL);

	if (port < 0 || other < 0)
		return 1;
	printf("%s\n", agent < 0 ? "refused" : "ready");
	fflush(stdout);
	if (agent >= 0)
		poll(NULL, 0, 60000);
	return 0;
}

static int events(int count)
{
	struct ibv_context *context = open_first();
	struct ibv_async_event event;

	printf("ready\n");
	fflush(stdout);
	while (count-- > 0) {
		if (ibv_get_async_event(context, &event)) {
			perror("ibv_get_async_event");
			return 1;
		}
		printf("%d port %d\n", event.event_type, event.element.port_num);
		fflush(stdout);
		ibv_ack_async_event(&event);
	}
	return ibv_close_device(context);
}

static int hangup(void)
{
	struct ibv_context *context = open_first();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, channel, 0), *seen;
	int port = umad_open_port(ibv_get_device_name(context->device), 1), length = 256;
	char umad[512];
	void *arg;
	struct ibv_async_event event;
	struct pollfd fds[3] = { { .fd = context->async_fd, .events = POLLIN },
				 { .fd = channel->fd, .events = POLLIN },
				 { .fd = umad_get_fd(port), .events = POLLIN } };
	int i;

	ibv_req_notify_cq(cq, 0);
	printf("ready\n");
	fflush(stdout);
	for (i = 0; i < 3; i++)
		if (poll(&fds[i], 1, 10000) != 1)
			return 3;
	if (!ibv_get_async_event(context, &event) || umad_recv(port, umad, &length, 100) >= 0)
		return 4;
	/* The armed CQ may give a last event; after it, only errors. */
	if (!ibv_get_cq_event(channel, &seen, &arg) && !ibv_get_cq_event(channel, &seen, &arg))
		return 5;
	printf("all hung up\n");
	return 0;
}

static int netlink(int count)
{
	struct sockaddr_nl group = { .nl_family = AF_NETLINK, .nl_groups = 1 << 2 }, none = { .nl_family = AF_NETLINK };
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA), other = socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA);
	char text[64] = "answer";

	/* Whoever binds to no group would ask a kernel that isn't there. */
	if (!bind(other, (struct sockaddr *)&none, sizeof(none)))
		return 3;
	if (bind(fd, (struct sockaddr *)&group, sizeof(group)))
		return 4;
	printf("ready\n");
	fflush(stdout);
	while (count-- > 0) {
		struct sockaddr_nl from;
		struct iovec iov = { text, sizeof(text) };
		struct msghdr msg = { .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &iov, .msg_iovlen = 1 };

		if (recvmsg(fd, &msg, 0) < 0)
			return 5;
		printf("%s\n", from.nl_pid ? "somebody" : "kernel");
		fflush(stdout);
		if (sendto(fd, text, 16, 0, (struct sockaddr *)&group, sizeof(group)) != 16)
			return 6;
	}
	return 0;
}

static int list(void)
{
	int count, i, p;
	struct ibv_device **devices = ibv_get_device_list(&count);

	for (i = 0; i < count; i++) {
		struct ibv_context *context = ibv_open_device(devices[i]);
		struct ibv_device_attr device;

		if (!context || ibv_query_device(context, &device))
			return 1;
		for (p = 1; p <= device.phys_port_cnt; p++) {
			struct ibv_port_attr port;
			union ibv_gid gid;
			int failed = ibv_query_port(context, p, &port);

			printf("%s guid=%016llx port=%d state=%d layer=%d gids=%d gid0=%s\n",
			       ibv_get_device_name(devices[i]),
			       (unsigned long long)be64toh(ibv_get_device_guid(devices[i])), p, port.state, port.link_layer,
			       port.gid_tbl_len, !failed && !ibv_query_gid(context, p, 0, &gid) ? "yes" : "no");
		}
		ibv_close_device(context);
	}
	ibv_free_device_list(devices);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "path"))
		return path(argc, argv);
	if (argc > 2 && !strcmp(argv[1], "notices"))
		return notices(atoi(argv[2]));
	if (argc > 1 && !strcmp(argv[1], "hold"))
		return hold();
	if (argc > 2 && !strcmp(argv[1], "events"))
		return events(atoi(argv[2]));
	if (argc > 1 && !strcmp(argv[1], "hangup"))
		return hangup();
	if (argc > 2 && !strcmp(argv[1], "netlink"))
		return netlink(atoi(argv[2]));
	if (argc > 1 && !strcmp(argv[1], "list"))
		return list();
	return 2;
}
