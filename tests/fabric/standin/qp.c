/* Queue pairs: making, asking, destroying, and the multicast groups they are attached to. */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int check_cap(const struct ibv_qp_cap *cap)
{
	if (cap->max_send_wr > MAX_QP_WR || cap->max_recv_wr > MAX_QP_WR || cap->max_send_sge > MAX_SGE ||
	    cap->max_recv_sge > MAX_SGE || cap->max_inline_data > MAX_INLINE)
		return EINVAL;
	return 0;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct fab_msg msg = { .op = FAB_CREATE_QP };
	struct fab_qp *qp = calloc(1, sizeof(*qp));
	int err = EINVAL;

	if (!qp)
		return NULL;
	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_PD, pd, "ibv_create_qp") || !fab_expect(FAB_CQ, init->send_cq, "ibv_create_qp") ||
	    !fab_expect(FAB_CQ, init->recv_cq, "ibv_create_qp"))
		goto fail;
	if (init->qp_type != IBV_QPT_UD || init->srq) {
		err = EOPNOTSUPP;
		goto fail;
	}
	err = check_cap(&init->cap);
	if (err)
		goto fail;
	qp->cap = init->cap;
	/* Never a queue of zero entries: the rings divide by their size. */
	qp->rq = calloc(init->cap.max_recv_wr + 1, sizeof(*qp->rq));
	qp->sq = calloc(init->cap.max_send_wr + 1, sizeof(*qp->sq));
	err = ENOMEM;
	if (!qp->rq || !qp->sq)
		goto fail;
	msg.v[0] = init->send_cq->handle;
	msg.v[1] = init->recv_cq->handle;
	msg.v[2] = init->cap.max_send_wr;
	msg.v[3] = init->cap.max_recv_wr;
	err = fab_call(ctx_of(pd->context)->ctl, &msg, NULL, 0, NULL, 0);
	if (err)
		goto fail;
	qp->qp.context = pd->context;
	qp->qp.qp_context = init->qp_context;
	qp->qp.pd = pd;
	qp->qp.send_cq = init->send_cq;
	qp->qp.recv_cq = init->recv_cq;
	qp->qp.handle = qp->qp.qp_num = msg.obj;
	qp->qp.state = IBV_QPS_RESET;
	qp->qp.qp_type = init->qp_type;
	pthread_mutex_init(&qp->qp.mutex, NULL);
	pthread_cond_init(&qp->qp.cond, NULL);
	qp->sig_all = init->sq_sig_all;
	fab_add(&qp->obj, FAB_QP, &qp->qp, pd);
	pthread_mutex_unlock(&fab_lock);
	return &qp->qp;
fail:
	pthread_mutex_unlock(&fab_lock);
	free(qp->rq);
	free(qp->sq);
	free(qp);
	errno = err;
	return NULL;
}

EXPORT int ibv_query_qp(struct ibv_qp *handle, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct fab_msg msg = { .op = FAB_QUERY_QP };
	struct fab_qp *qp;
	int err = EINVAL;

	(void)mask;
	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_QP, handle, "ibv_query_qp"))
		goto out;
	qp = qp_of(handle);
	msg.obj = handle->qp_num;
	err = fab_call(ctx_of(handle->context)->ctl, &msg, NULL, 0, NULL, 0);
	if (err)
		goto out;
	handle->state = msg.v[0];
	memset(attr, 0, sizeof(*attr));
	attr->qp_state = attr->cur_qp_state = handle->state;
	attr->pkey_index = msg.v[1];
	attr->port_num = msg.v[2];
	attr->qkey = msg.v[3];
	attr->cap = qp->cap;
	memset(init, 0, sizeof(*init));
	init->qp_context = handle->qp_context;
	init->send_cq = handle->send_cq;
	init->recv_cq = handle->recv_cq;
	init->cap = qp->cap;
	init->qp_type = handle->qp_type;
	init->sq_sig_all = qp->sig_all;
out:
	pthread_mutex_unlock(&fab_lock);
	return err;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *handle)
{
	struct fab_msg msg = { .op = FAB_DESTROY_QP };
	struct fab_qp *qp;
	int err;

	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_QP, handle, "ibv_destroy_qp")) {
		pthread_mutex_unlock(&fab_lock);
		return EINVAL;
	}
	qp = qp_of(handle);
	if (qp->attached) {
		fab_violation("ibv_destroy_qp: QP 0x%x is attached to %u multicast groups", handle->qp_num,
			      qp->attached);
		pthread_mutex_unlock(&fab_lock);
		return EBUSY;
	}
	msg.obj = handle->qp_num;
	err = fab_call(ctx_of(handle->context)->ctl, &msg, NULL, 0, NULL, 0);
	if (err && err != EIO) {
		pthread_mutex_unlock(&fab_lock);
		return err;
	}
	fab_remove(&qp->obj);
	fab_purge(cq_of(handle->send_cq), handle->qp_num);
	fab_purge(cq_of(handle->recv_cq), handle->qp_num);
	pthread_mutex_unlock(&fab_lock);
	free(qp->rq);
	free(qp->sq);
	free(qp);
	return 0;
}

/* Attaching twice is accepted, and is undone by one detach. */
static int mcast(uint32_t op, struct ibv_qp *handle, const union ibv_gid *gid, uint16_t lid, const char *call)
{
	struct fab_msg msg = { .op = op, .v = { lid } };
	int err = EINVAL;

	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_QP, handle, call))
		goto out;
	if (gid->raw[0] != 0xff) {
		fab_violation("%s: not a multicast GID", call);
		goto out;
	}
	if (lid < 0xc000 || lid == 0xffff) {
		fab_violation("%s: 0x%x is no multicast LID", call, lid);
		goto out;
	}
	msg.obj = handle->qp_num;
	memcpy(msg.gid, gid->raw, sizeof(msg.gid));
	err = fab_call(ctx_of(handle->context)->ctl, &msg, NULL, 0, NULL, 0);
	if (!err)
		qp_of(handle)->attached = msg.v[0];
	else if (err == EIO)
		/* The device is gone, and its attachments with it. */
		qp_of(handle)->attached = 0;
	else if (op == FAB_DETACH)
		fab_violation("%s: QP 0x%x is not attached to that group", call, handle->qp_num);
out:
	pthread_mutex_unlock(&fab_lock);
	return err;
}

EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return mcast(FAB_ATTACH, qp, gid, lid, "ibv_attach_mcast");
}

EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return mcast(FAB_DETACH, qp, gid, lid, "ibv_detach_mcast");
}
