/* The states of a UD queue pair: which changes there are and which attributes each needs or takes. */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>

struct change {
	enum ibv_qp_state from, to;
	int needs, takes;
};

#define STATE IBV_QP_STATE
#define ADDRESS (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)

static const struct change changes[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, STATE | ADDRESS, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, 0, STATE | ADDRESS },
	{ IBV_QPS_INIT, IBV_QPS_RTR, STATE, IBV_QP_PKEY_INDEX | IBV_QP_QKEY },
	{ IBV_QPS_RTR, IBV_QPS_RTS, STATE | IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ IBV_QPS_RTS, IBV_QPS_RTS, 0, STATE | IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ IBV_QPS_RTS, IBV_QPS_SQD, STATE, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPS_SQD, IBV_QPS_SQD, 0, STATE | IBV_QP_PKEY_INDEX | IBV_QP_QKEY },
	{ IBV_QPS_SQD, IBV_QPS_RTS, STATE, IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ IBV_QPS_SQE, IBV_QPS_RTS, STATE, IBV_QP_CUR_STATE | IBV_QP_QKEY },
};

static bool allowed(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	size_t i;

	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return mask == STATE;
	for (i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		const struct change *c = &changes[i];

		if (c->from == from && c->to == to)
			return (mask & c->needs) == c->needs && !(mask & ~(c->needs | c->takes));
	}
	return false;
}

static int tell(struct fab_qp *qp, int mask, enum ibv_qp_state state)
{
	struct fab_msg msg = { .op = FAB_MODIFY_QP, .obj = qp->qp.qp_num, .flags = mask };

	msg.v[0] = state;
	msg.v[1] = qp->pkey_index;
	msg.v[2] = qp->port;
	msg.v[3] = qp->qkey;
	return fab_call(ctx_of(qp->qp.context)->ctl, &msg, NULL, 0, NULL, 0);
}

/* A change that the HCA makes by itself. The caller holds fab_lock. */
int fab_set_state(struct fab_qp *qp, enum ibv_qp_state state)
{
	int err = tell(qp, STATE, state);

	if (!err)
		qp->qp.state = state;
	return err;
}

static void reset(struct fab_qp *qp)
{
	qp->epoch++;
	qp->rq_head = qp->rq_count = 0;
	qp->sq_next = qp->sq_done = 0;
	fab_purge(cq_of(qp->qp.send_cq), qp->qp.qp_num);
	fab_purge(cq_of(qp->qp.recv_cq), qp->qp.qp_num);
}

EXPORT int ibv_modify_qp(struct ibv_qp *handle, struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from, to;
	struct fab_qp *qp;
	int err = EINVAL;

	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_QP, handle, "ibv_modify_qp"))
		goto out;
	qp = qp_of(handle);
	/* The error of a send may be under way and change the state. */
	fab_drain(cq_of(handle->send_cq));
	from = handle->state;
	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != from) {
		fab_violation("ibv_modify_qp: QP 0x%x is in state %d, not %d", handle->qp_num, from,
			      attr->cur_qp_state);
		goto out;
	}
	to = mask & STATE ? attr->qp_state : from;
	if (!allowed(from, to, mask)) {
		fab_violation("ibv_modify_qp: QP 0x%x from state %d to %d with mask 0x%x", handle->qp_num, from, to,
			      mask);
		goto out;
	}
	if (mask & IBV_QP_PKEY_INDEX)
		qp->pkey_index = attr->pkey_index;
	if (mask & IBV_QP_PORT)
		qp->port = attr->port_num;
	if (mask & IBV_QP_QKEY)
		qp->qkey = attr->qkey;
	err = tell(qp, mask, to);
	if (err)
		goto out;
	handle->state = to;
	if (to == IBV_QPS_RESET)
		reset(qp);
out:
	pthread_mutex_unlock(&fab_lock);
	return err;
}
