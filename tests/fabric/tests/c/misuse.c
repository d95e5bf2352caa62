/*
 * Does one thing that hardware would not forgive (named by the argument), or with "correct" all that a
 * datagram program does, correctly; with "edges", in an edge-triggered loop.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <infiniband/verbs.h>

#define QKEY 0x1234567
#define DEPTH 4
#define SIZE 2048

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static struct ibv_ah *ah;
static struct ibv_port_attr port;
static char buffer[(DEPTH + 1) * (SIZE + 40)];
static char receive_buffers[DEPTH][SIZE + 40];
static struct ibv_mr *receive_mr;

#define CHECK(call)                                                        \
	do {                                                               \
		if (!(call)) {                                             \
			fprintf(stderr, "failed: %s (line %d)\n", #call, __LINE__); \
			exit(1);                                           \
		}                                                          \
	} while (0)

static int post_recv(void *at, unsigned length, uint32_t lkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)at, .length = length, .lkey = lkey };
	struct ibv_recv_wr wr = { .wr_id = (uintptr_t)at, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static int post_send(void *at, unsigned length, uint32_t lkey, struct ibv_ah *to, uint32_t qkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)at, .length = length, .lkey = lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.ud.ah = to;
	wr.wr.ud.remote_qpn = qp->qp_num;
	wr.wr.ud.remote_qkey = qkey;
	return ibv_post_send(qp, &wr, &bad);
}

static int to_init(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
}

static int to_ready(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		return 1;
	attr.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

static void setup(int cqe)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD };
	struct ibv_ah_attr attr = { .port_num = 1 };

	CHECK(list && list[0]);
	CHECK(context = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	CHECK(!ibv_query_port(context, 1, &port));
	CHECK(pd = ibv_alloc_pd(context));
	CHECK(channel = ibv_create_comp_channel(context));
	CHECK(cq = ibv_create_cq(context, cqe, NULL, channel, 0));
	init.send_cq = init.recv_cq = cq;
	init.cap = (struct ibv_qp_cap){ DEPTH, DEPTH, 1, 1, 0 };
	CHECK(qp = ibv_create_qp(pd, &init));
	CHECK(mr = ibv_reg_mr(pd, buffer, sizeof(buffer), 0));
	CHECK(receive_mr = ibv_reg_mr(pd, receive_buffers, sizeof(receive_buffers), IBV_ACCESS_LOCAL_WRITE));
	attr.dlid = port.lid;
	CHECK(ah = ibv_create_ah(pd, &attr));
}

static void teardown(void)
{
	CHECK(!ibv_destroy_ah(ah));
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_cq(cq));
	CHECK(!ibv_destroy_comp_channel(channel));
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_dereg_mr(receive_mr));
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
}

static int readable(int fd, int ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, ms) == 1;
}

static int completion(struct ibv_wc *wc)
{
	int i, n = 0;

	for (i = 0; i < 2000 && !n; i++) {
		n = ibv_poll_cq(cq, 1, wc);
		if (!n)
			poll(NULL, 0, 1);
	}
	return n;
}

static void correct(void)
{
	struct ibv_cq *seen;
	struct ibv_wc wc;
	void *arg;

	CHECK(!to_init());
	CHECK(!post_recv(receive_buffers[0], SIZE + 40, receive_mr->lkey));
	CHECK(!to_ready());
	CHECK(!ibv_req_notify_cq(cq, 0));
	CHECK(!readable(channel->fd, 50));
	memcpy(buffer, "hello", 6);
	CHECK(!post_send(buffer, 6, mr->lkey, ah, QKEY));
	CHECK(readable(channel->fd, 2000));
	/* Completions taken before the event: the event stays, and it is one. */
	CHECK(completion(&wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(completion(&wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(readable(channel->fd, 1000));
	CHECK(!ibv_get_cq_event(channel, &seen, &arg) && seen == cq);
	ibv_ack_cq_events(cq, 1);
	CHECK(!readable(channel->fd, 50));
	CHECK(!strcmp(receive_buffers[0] + 40, "hello"));
	/* Completions that were there when it was armed give no event. */
	CHECK(!post_send(buffer, 6, mr->lkey, ah, QKEY));
	poll(NULL, 0, 100);
	CHECK(!ibv_req_notify_cq(cq, 0));
	CHECK(!readable(channel->fd, 100));
	CHECK(completion(&wc) == 1 && wc.opcode == IBV_WC_SEND);
	/* A wrong Q_Key and a missing receive lose the datagram and nothing else. */
	CHECK(!post_recv(receive_buffers[1], SIZE + 40, receive_mr->lkey));
	CHECK(!post_send(buffer, 6, mr->lkey, ah, QKEY + 1));
	CHECK(completion(&wc) == 1 && wc.opcode == IBV_WC_SEND && wc.status == IBV_WC_SUCCESS);
	CHECK(!completion(&wc));
	CHECK(readable(channel->fd, 1000) && !ibv_get_cq_event(channel, &seen, &arg));
	ibv_ack_cq_events(cq, 1);
	/* In the error state the receive comes back. */
	CHECK(!ibv_modify_qp(qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE));
	CHECK(completion(&wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
	CHECK(wc.wr_id == (uintptr_t)receive_buffers[1]);
	teardown();
}

static void ready(void);

static void edges(void)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int loop = epoll_create1(0), round, taken;
	struct ibv_cq *seen;
	struct ibv_wc wc;
	void *arg;

	CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	CHECK(!epoll_ctl(loop, EPOLL_CTL_ADD, channel->fd, &event));
	ready();
	CHECK(!ibv_req_notify_cq(cq, 0));
	for (round = 0; round < 50; round++) {
		CHECK(!post_send(buffer, 8, mr->lkey, ah, QKEY));
		CHECK(epoll_wait(loop, &event, 1, 2000) == 1);
		CHECK(!ibv_get_cq_event(channel, &seen, &arg));
		CHECK(ibv_get_cq_event(channel, &seen, &arg) && errno == EAGAIN);
		ibv_ack_cq_events(cq, 1);
		CHECK(!ibv_req_notify_cq(cq, 0));
		/* The send's completion and the receive's, in either order, with or without another event. */
		for (taken = 0; taken < 2; taken++) {
			CHECK(completion(&wc) == 1 && wc.status == IBV_WC_SUCCESS);
			if (wc.opcode == IBV_WC_RECV)
				CHECK(!post_recv((void *)(uintptr_t)wc.wr_id, SIZE + 40, receive_mr->lkey));
		}
		while (!ibv_get_cq_event(channel, &seen, &arg)) {
			ibv_ack_cq_events(cq, 1);
			CHECK(!ibv_req_notify_cq(cq, 0));
		}
		epoll_wait(loop, &event, 1, 0);
	}
	teardown();
}

static void ready(void)
{
	int i;

	CHECK(!to_init());
	for (i = 0; i < DEPTH; i++)
		CHECK(!post_recv(receive_buffers[i], SIZE + 40, receive_mr->lkey));
	CHECK(!to_ready());
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	union ibv_gid mgid = { .raw = { 0xff, 0x12 } };
	struct ibv_cq *seen;
	struct ibv_wc wc;
	void *arg;
	int i;

	setup(strcmp(what, "cq-overflow") ? 2 * DEPTH : 1);
	if (!strcmp(what, "correct")) {
		correct();
	} else if (!strcmp(what, "edges")) {
		edges();
	} else if (!strcmp(what, "send-too-early")) {
		CHECK(!to_init());
		CHECK(post_send(buffer, 1, mr->lkey, ah, QKEY));
	} else if (!strcmp(what, "attribute-mask")) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

		CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX));
	} else if (!strcmp(what, "state-order")) {
		CHECK(ibv_modify_qp(qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR }, IBV_QP_STATE));
	} else if (!strcmp(what, "bad-lkey")) {
		ready();
		CHECK(!post_send(buffer, 1, mr->lkey + 1, ah, QKEY));
		CHECK(completion(&wc) == 1 && wc.status == IBV_WC_LOC_PROT_ERR);
		/* The send queue has stopped: what is posted now comes back. */
		CHECK(!post_send(buffer, 1, mr->lkey, ah, QKEY));
		CHECK(completion(&wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
	} else if (!strcmp(what, "out-of-bounds")) {
		ready();
		CHECK(!post_send(buffer + sizeof(buffer) - 1, 2, mr->lkey, ah, QKEY));
	} else if (!strcmp(what, "read-only-receive")) {
		CHECK(!to_init());
		CHECK(!post_recv(buffer, SIZE, mr->lkey));
	} else if (!strcmp(what, "small-receive")) {
		CHECK(!to_init());
		CHECK(!post_recv(receive_buffers[0], 45, receive_mr->lkey));
		CHECK(!to_ready());
		CHECK(!post_send(buffer, 6, mr->lkey, ah, QKEY));
		for (i = 0; i < 2; i++)
			CHECK(completion(&wc) == 1);
	} else if (!strcmp(what, "receive-overflow")) {
		ready();
		CHECK(post_recv(receive_buffers[0], SIZE, receive_mr->lkey));
	} else if (!strcmp(what, "send-overflow")) {
		ready();
		for (i = 0; i < DEPTH; i++)
			CHECK(!post_send(buffer, 1, mr->lkey, ah, QKEY));
		CHECK(post_send(buffer, 1, mr->lkey, ah, QKEY));
	} else if (!strcmp(what, "mtu")) {
		ready();
		CHECK(!post_send(buffer, SIZE + 1, mr->lkey, ah, QKEY));
		CHECK(completion(&wc) == 1 && wc.status == IBV_WC_LOC_LEN_ERR);
	} else if (!strcmp(what, "foreign-pd")) {
		struct ibv_ah_attr attr = { .port_num = 1, .dlid = port.lid };
		struct ibv_pd *other = ibv_alloc_pd(context);
		struct ibv_ah *foreign = ibv_create_ah(other, &attr);

		ready();
		CHECK(!post_send(buffer, 1, mr->lkey, foreign, QKEY));
		CHECK(completion(&wc) == 1 && wc.status == IBV_WC_LOC_QP_OP_ERR);
	} else if (!strcmp(what, "destroyed-ah")) {
		ready();
		CHECK(!ibv_destroy_ah(ah));
		CHECK(post_send(buffer, 1, mr->lkey, ah, QKEY));
	} else if (!strcmp(what, "cq-overflow")) {
		ready();
		CHECK(!post_send(buffer, 1, mr->lkey, ah, QKEY));
		poll(NULL, 0, 200);
		ibv_poll_cq(cq, 1, &wc);
	} else if (!strcmp(what, "busy-pd")) {
		CHECK(ibv_dealloc_pd(pd));
	} else if (!strcmp(what, "busy-cq")) {
		CHECK(ibv_destroy_cq(cq));
	} else if (!strcmp(what, "attached")) {
		CHECK(!to_init());
		CHECK(!ibv_attach_mcast(qp, &mgid, 0xc001));
		CHECK(ibv_destroy_qp(qp));
		CHECK(!ibv_detach_mcast(qp, &mgid, 0xc001));
		teardown();
	} else if (!strcmp(what, "too-many-acks") || !strcmp(what, "no-ack")) {
		ready();
		CHECK(!ibv_req_notify_cq(cq, 0));
		CHECK(!post_send(buffer, 1, mr->lkey, ah, QKEY));
		CHECK(!ibv_get_cq_event(channel, &seen, &arg));
		if (!strcmp(what, "too-many-acks"))
			ibv_ack_cq_events(cq, 2);
		teardown();
	} else {
		return 2;
	}
	return 0;
}
