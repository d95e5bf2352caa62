/*
 * Completion queues. The switch puts completions into the CQ's connection; they are taken over when
 * the program looks (polls or asks for a notification), which no program can tell from hardware that
 * writes them into memory by itself.
 */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int vector)
{
	struct fab_msg msg = { .op = FAB_CREATE_CQ, .v = { cqe } };
	struct fab_cq *cq = calloc(1, sizeof(*cq));
	/* Disarmed until the program asks; a connection that hangs up still shows on the context's. */
	struct epoll_event quiet = { .events = EPOLLONESHOT }, moved = { .events = EPOLLIN };
	int err = 0;

	if (!cq)
		return NULL;
	cq->fd = cq->event_fd = -1;
	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_CONTEXT, context, "ibv_create_cq") ||
	    (channel && !fab_expect(FAB_CHANNEL, channel, "ibv_create_cq")) || cqe < 1 || cqe > MAX_CQE ||
	    vector < 0 || vector >= context->num_comp_vectors) {
		err = EINVAL;
		goto out;
	}
	cq->ring = calloc(cqe, sizeof(*cq->ring));
	if (!cq->ring) {
		err = ENOMEM;
		goto out;
	}
	err = fab_call(ctx_of(context)->ctl, &msg, NULL, 0, NULL, 0);
	if (err)
		goto out;
	cq->fd = fab_open_link(FAB_CONN_CQ, ctx_of(context)->id, msg.obj, 0, NULL);
	cq->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	quiet.data.u64 = msg.obj;
	moved.data.u64 = msg.obj | FAB_EVENT_MOVED;
	if (cq->fd < 0 || cq->event_fd < 0 ||
	    (channel && (epoll_ctl(channel->fd, EPOLL_CTL_ADD, cq->fd, &quiet) ||
			 epoll_ctl(channel->fd, EPOLL_CTL_ADD, cq->event_fd, &moved))))
		err = errno;
out:
	if (err) {
		pthread_mutex_unlock(&fab_lock);
		if (cq->fd >= 0)
			close(cq->fd);
		if (cq->event_fd >= 0)
			close(cq->event_fd);
		free(cq->ring);
		free(cq);
		errno = err;
		return NULL;
	}
	cq->cq.context = context;
	cq->cq.channel = channel;
	cq->cq.cq_context = cq_context;
	cq->cq.handle = msg.obj;
	cq->cq.cqe = cqe;
	pthread_mutex_init(&cq->cq.mutex, NULL);
	pthread_cond_init(&cq->cq.cond, NULL);
	if (channel)
		channel->refcnt++;
	fab_add(&cq->obj, FAB_CQ, &cq->cq, context);
	pthread_mutex_unlock(&fab_lock);
	return &cq->cq;
}

static bool uses_cq(const struct fab_obj *obj, const void *cq)
{
	const struct fab_qp *qp = (const struct fab_qp *)obj;

	return obj->kind == FAB_QP && (qp->qp.send_cq == cq || qp->qp.recv_cq == cq);
}

EXPORT int ibv_destroy_cq(struct ibv_cq *handle)
{
	struct fab_msg msg = { .op = FAB_DESTROY_CQ };
	struct fab_cq *cq;
	int i;

	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_CQ, handle, "ibv_destroy_cq")) {
		pthread_mutex_unlock(&fab_lock);
		return EINVAL;
	}
	if (fab_find(uses_cq, handle)) {
		fab_violation("ibv_destroy_cq: queue pairs still use it");
		pthread_mutex_unlock(&fab_lock);
		return EBUSY;
	}
	cq = cq_of(handle);
	/* libibverbs waits here for ever. Another thread may be about to acknowledge. */
	for (i = 0; i < 100 && cq->events != cq->acked; i++) {
		pthread_mutex_unlock(&fab_lock);
		usleep(10000);
		pthread_mutex_lock(&fab_lock);
	}
	if (cq->events != cq->acked)
		fab_violation("ibv_destroy_cq: %u completion events were not acknowledged (this would hang)",
			      cq->events - cq->acked);
	msg.obj = handle->handle;
	fab_call(ctx_of(handle->context)->ctl, &msg, NULL, 0, NULL, 0);
	if (handle->channel) {
		epoll_ctl(handle->channel->fd, EPOLL_CTL_DEL, cq->fd, NULL);
		epoll_ctl(handle->channel->fd, EPOLL_CTL_DEL, cq->event_fd, NULL);
		handle->channel->refcnt--;
	}
	fab_remove(&cq->obj);
	close(cq->fd);
	close(cq->event_fd);
	pthread_mutex_unlock(&fab_lock);
	free(cq->ring);
	free(cq);
	return 0;
}

static struct fab_cqe *push(struct fab_cq *cq)
{
	struct fab_msg raise = { .op = FAB_RAISE, .index = IBV_EVENT_CQ_ERR, .obj = cq->cq.handle };
	struct fab_cqe *e;

	if (cq->count == (uint32_t)cq->cq.cqe) {
		if (!cq->overflowed) {
			fab_violation("completion queue overflow: more than %d entries", cq->cq.cqe);
			fab_send(ctx_of(cq->cq.context)->ctl, &raise, NULL, 0);
		}
		cq->overflowed = true;
		return NULL;
	}
	e = &cq->ring[(cq->head + cq->count++) % cq->cq.cqe];
	memset(e, 0, sizeof(*e));
	return e;
}

/* Puts a datagram where the posted receive wants it. Returns the completion's status. */
static enum ibv_wc_status scatter(struct fab_qp *qp, const struct fab_recv *wqe, const uint8_t *data, size_t len)
{
	size_t room = 0, n;
	int i;

	for (i = 0; i < wqe->num_sge; i++)
		room += wqe->sge[i].length;
	if (room < len) {
		fab_violation("QP 0x%x: a datagram of %zu bytes (with GRH) came to a receive of %zu", qp->qp.qp_num,
			      len, room);
		return IBV_WC_LOC_LEN_ERR;
	}
	for (i = 0; i < wqe->num_sge && len; i++) {
		if (!fab_check_sge(qp->qp.pd, &wqe->sge[i], true, "receive"))
			return IBV_WC_LOC_PROT_ERR;
		n = len < wqe->sge[i].length ? len : wqe->sge[i].length;
		memcpy((void *)(uintptr_t)wqe->sge[i].addr, data, n);
		data += n;
		len -= n;
	}
	return IBV_WC_SUCCESS;
}

static void take_recv(struct fab_cq *cq, struct fab_qp *qp, const struct fab_msg *msg, const uint8_t *data)
{
	struct fab_recv *wqe;
	struct fab_cqe *e;

	if (!qp->rq_count) {
		fab_violation("QP 0x%x: completion without a posted receive (fault of the stand-in)", qp->qp.qp_num);
		return;
	}
	wqe = &qp->rq[qp->rq_head];
	qp->rq_head = (qp->rq_head + 1) % qp->cap.max_recv_wr;
	qp->rq_count--;
	e = push(cq);
	if (!e)
		return;
	e->wc.wr_id = wqe->wr_id;
	e->wc.opcode = IBV_WC_RECV;
	e->wc.status = msg->v[0];
	if (e->wc.status == IBV_WC_SUCCESS) {
		e->wc.status = scatter(qp, wqe, data, msg->len);
		if (e->wc.status != IBV_WC_SUCCESS)
			fab_set_state(qp, IBV_QPS_ERR);
	}
	e->wc.byte_len = msg->v[1];
	e->wc.src_qp = msg->v[2];
	e->wc.slid = msg->v[3];
	e->wc.sl = msg->v[4];
	e->wc.pkey_index = msg->v[5];
	e->wc.imm_data = msg->v[6];
	e->wc.dlid_path_bits = msg->v[7];
	e->wc.wc_flags = (msg->flags & FAB_F_GRH ? IBV_WC_GRH : 0) | (msg->flags & FAB_F_IMM ? IBV_WC_WITH_IMM : 0);
	e->wc.qp_num = qp->qp.qp_num;
	e->qp_epoch = qp->epoch;
}

static void take_send(struct fab_cq *cq, struct fab_qp *qp, const struct fab_msg *msg)
{
	struct fab_cqe *e = push(cq);

	if (msg->v[0] != IBV_WC_SUCCESS && qp->qp.state == IBV_QPS_RTS)
		qp->qp.state = IBV_QPS_SQE;
	if (!e)
		return;
	e->wc.wr_id = qp->sq[msg->id % qp->cap.max_send_wr];
	e->wc.opcode = IBV_WC_SEND;
	e->wc.status = msg->v[0];
	e->wc.qp_num = qp->qp.qp_num;
	e->qp_epoch = qp->epoch;
	e->send = true;
	e->send_seq = msg->id;
}

/* The completions that would fire the notification are being taken: keep the event for later. */
static void move_event(struct fab_cq *cq)
{
	struct epoll_event quiet = { .events = EPOLLONESHOT, .data.u64 = cq->cq.handle };
	uint64_t one = 1;

	cq->armed = false;
	epoll_ctl(cq->cq.channel->fd, EPOLL_CTL_MOD, cq->fd, &quiet);
	if (write(cq->event_fd, &one, sizeof(one)) < 0)
		fab_violation("a completion event was lost (fault of the stand-in)");
}

/* Takes over whatever has come. Bounded by what the queue pairs had posted. */
void fab_drain(struct fab_cq *cq)
{
	struct fab_msg msg;
	uint8_t data[FAB_MAX_PAYLOAD];
	struct iovec iov[2] = { { &msg, sizeof(msg) }, { data, sizeof(data) } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2 };

	while (recvmsg(cq->fd, &mh, MSG_DONTWAIT) >= (ssize_t)sizeof(msg)) {
		struct fab_qp *qp = fab_qp_by_number(cq->cq.context, msg.obj);

		/* A queue pair that was destroyed or reset took its completions with it. */
		if (!qp || msg.v[8] != qp->epoch)
			continue;
		if (msg.flags & FAB_F_RECV)
			take_recv(cq, qp, &msg, data);
		else
			take_send(cq, qp, &msg);
		if (cq->armed)
			move_event(cq);
	}
}

/* Removes the completions of a queue pair that is destroyed or reset. */
void fab_purge(struct fab_cq *cq, uint32_t qpn)
{
	uint32_t i, kept = 0;

	fab_drain(cq);
	for (i = 0; i < cq->count; i++) {
		struct fab_cqe e = cq->ring[(cq->head + i) % cq->cq.cqe];

		if (e.wc.qp_num != qpn)
			cq->ring[(cq->head + kept++) % cq->cq.cqe] = e;
	}
	cq->count = kept;
}

int fab_poll_cq(struct ibv_cq *handle, int num, struct ibv_wc *wc)
{
	struct fab_cq *cq;
	int n = 0;

	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_CQ, handle, "ibv_poll_cq") || num < 0) {
		pthread_mutex_unlock(&fab_lock);
		return -EINVAL;
	}
	cq = cq_of(handle);
	fab_drain(cq);
	while (n < num && cq->count) {
		struct fab_cqe *e = &cq->ring[cq->head];

		if (e->send) {
			struct fab_qp *qp = fab_qp_by_number(handle->context, e->wc.qp_num);

			/* Also frees the unsignaled ones before it. */
			if (qp && qp->epoch == e->qp_epoch)
				qp->sq_done = e->send_seq + 1;
		}
		wc[n++] = e->wc;
		cq->head = (cq->head + 1) % handle->cqe;
		cq->count--;
	}
	if (cq->overflowed && !n)
		n = -EIO;
	pthread_mutex_unlock(&fab_lock);
	return n;
}

int fab_req_notify(struct ibv_cq *handle, int solicited)
{
	struct epoll_event arm = { .events = EPOLLIN | EPOLLONESHOT };
	int err = 0;

	(void)solicited;
	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_CQ, handle, "ibv_req_notify_cq")) {
		err = EINVAL;
	} else if (!handle->channel) {
		fab_violation("ibv_req_notify_cq: the completion queue has no channel");
		err = EINVAL;
	} else {
		/* Completions that are there already give no event: the program has to poll once more
		 * after asking, or it sleeps on them. */
		fab_drain(cq_of(handle));
		cq_of(handle)->armed = true;
		arm.data.u64 = handle->handle;
		if (epoll_ctl(handle->channel->fd, EPOLL_CTL_MOD, cq_of(handle)->fd, &arm))
			err = errno;
	}
	pthread_mutex_unlock(&fab_lock);
	return err;
}
