/* Asynchronous events: messages of the switch on the context's async_fd. */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static bool about_qp(uint32_t event)
{
	switch (event) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return true;
	default:
		return false;
	}
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct fab_msg msg;
	struct fab_cq *cq;
	struct fab_qp *qp;
	ssize_t n;
	int fd;

	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_CONTEXT, context, "ibv_get_async_event")) {
		pthread_mutex_unlock(&fab_lock);
		errno = EINVAL;
		return -1;
	}
	fd = context->async_fd;
	pthread_mutex_unlock(&fab_lock);
	for (;;) {
		n = recv(fd, &msg, sizeof(msg), 0);
		if (n < 0)
			return -1;
		if (n != sizeof(msg)) {
			errno = EIO;
			return -1;
		}
		memset(event, 0, sizeof(*event));
		event->event_type = msg.index;
		pthread_mutex_lock(&fab_lock);
		if (msg.index == IBV_EVENT_CQ_ERR) {
			cq = fab_cq_by_handle(context, msg.obj);
			event->element.cq = cq ? &cq->cq : NULL;
		} else if (about_qp(msg.index)) {
			qp = fab_qp_by_number(context, msg.obj);
			event->element.qp = qp ? &qp->qp : NULL;
		} else {
			event->element.port_num = msg.obj;
		}
		/* The object of an event may be gone by now: then there is nobody to tell. */
		if (msg.index == IBV_EVENT_CQ_ERR || about_qp(msg.index)) {
			if (!event->element.cq) {
				pthread_mutex_unlock(&fab_lock);
				continue;
			}
		}
		ctx_of(context)->async_seen++;
		pthread_mutex_unlock(&fab_lock);
		return 0;
	}
}

static bool is_context(const struct fab_obj *obj, const void *arg)
{
	const struct fab_context *ctx = (const struct fab_context *)obj;

	(void)arg;
	return obj->kind == FAB_CONTEXT && ctx->async_seen != ctx->async_acked;
}

/* The event doesn't say whose it is unless it is about a CQ or QP: any context that waits will do. */
EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct fab_context *ctx = NULL;

	pthread_mutex_lock(&fab_lock);
	if (event->event_type == IBV_EVENT_CQ_ERR && fab_live(FAB_CQ, event->element.cq))
		ctx = ctx_of(event->element.cq->context);
	else if (about_qp(event->event_type) && fab_live(FAB_QP, event->element.qp))
		ctx = ctx_of(event->element.qp->context);
	else
		ctx = (struct fab_context *)fab_find(is_context, NULL);
	if (ctx && ctx->async_seen != ctx->async_acked)
		ctx->async_acked++;
	else
		fab_violation("ibv_ack_async_event: no event is outstanding");
	pthread_mutex_unlock(&fab_lock);
}
