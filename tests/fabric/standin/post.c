/* Posting work requests. */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>
#include <string.h>

/* Copies what a send points to. Returns a completion status: a fault here is found by the HCA when
 * it works on the request, so the post succeeds and the completion carries the error. */
static enum ibv_wc_status gather(struct fab_qp *qp, const struct ibv_send_wr *wr, uint8_t *data, size_t *len)
{
	bool in_line = wr->send_flags & IBV_SEND_INLINE;
	int i;

	*len = 0;
	for (i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		if (!in_line && !fab_check_sge(qp->qp.pd, sge, false, "send"))
			return IBV_WC_LOC_PROT_ERR;
		if (*len + sge->length > 4096) {
			fab_violation("QP 0x%x: a datagram of more than 4096 bytes", qp->qp.qp_num);
			return IBV_WC_LOC_LEN_ERR;
		}
		memcpy(data + *len, (void *)(uintptr_t)sge->addr, sge->length);
		*len += sge->length;
	}
	return IBV_WC_SUCCESS;
}

static size_t inline_size(const struct ibv_send_wr *wr)
{
	size_t n = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++)
		n += wr->sg_list[i].length;
	return n;
}

/* What the call itself refuses, as drivers do. */
static int refuse_send(struct fab_qp *qp, const struct ibv_send_wr *wr)
{
	if (qp->qp.state == IBV_QPS_RESET || qp->qp.state == IBV_QPS_INIT || qp->qp.state == IBV_QPS_RTR) {
		fab_violation("ibv_post_send: QP 0x%x is in state %d", qp->qp.qp_num, qp->qp.state);
		return EINVAL;
	}
	if (qp->sq_next - qp->sq_done >= qp->cap.max_send_wr) {
		fab_violation("ibv_post_send: the send queue of QP 0x%x is full (%u)", qp->qp.qp_num,
			      qp->cap.max_send_wr);
		return ENOMEM;
	}
	if (wr->num_sge < 0 || wr->num_sge > (int)qp->cap.max_send_sge) {
		fab_violation("ibv_post_send: %d elements, QP 0x%x has %u", wr->num_sge, qp->qp.qp_num,
			      qp->cap.max_send_sge);
		return EINVAL;
	}
	if (wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM) {
		fab_violation("ibv_post_send: operation %d on a UD queue pair", wr->opcode);
		return EINVAL;
	}
	if ((wr->send_flags & IBV_SEND_INLINE) && inline_size(wr) > qp->cap.max_inline_data) {
		fab_violation("ibv_post_send: %zu bytes inline, QP 0x%x has %u", inline_size(wr), qp->qp.qp_num,
			      qp->cap.max_inline_data);
		return EINVAL;
	}
	return fab_expect(FAB_AH, wr->wr.ud.ah, "ibv_post_send") ? 0 : EINVAL;
}

static int post_one(struct fab_qp *qp, const struct ibv_send_wr *wr)
{
	struct fab_msg msg = { .op = FAB_SEND, .obj = qp->qp.qp_num };
	uint8_t data[4096];
	const struct ibv_ah_attr *attr;
	struct fab_ah *ah;
	size_t len;
	int err = refuse_send(qp, wr);

	if (err)
		return err;
	ah = ah_of(wr->wr.ud.ah);
	attr = &ah->attr;
	msg.v[8] = gather(qp, wr, data, &len);
	if (ah->ah.pd != qp->qp.pd) {
		fab_violation("ibv_post_send: address handle and QP 0x%x are of two protection domains",
			      qp->qp.qp_num);
		msg.v[8] = IBV_WC_LOC_QP_OP_ERR;
	} else if (attr->port_num != qp->port) {
		fab_violation("ibv_post_send: address handle of port %u, QP 0x%x of port %u", attr->port_num,
			      qp->qp.qp_num, qp->port);
		msg.v[8] = IBV_WC_LOC_QP_OP_ERR;
	}
	msg.id = qp->sq_next;
	msg.flags = (qp->sig_all || (wr->send_flags & IBV_SEND_SIGNALED) ? FAB_F_SIGNALED : 0) |
		    (wr->send_flags & IBV_SEND_SOLICITED ? FAB_F_SOLICITED : 0) |
		    (wr->opcode == IBV_WR_SEND_WITH_IMM ? FAB_F_IMM : 0) | (attr->is_global ? FAB_F_GRH : 0);
	msg.v[0] = attr->dlid;
	msg.v[1] = attr->sl | attr->src_path_bits << 8;
	msg.v[2] = wr->wr.ud.remote_qpn;
	/* A qkey with its top bit set stands for the QP's own. */
	msg.v[3] = wr->wr.ud.remote_qkey & 0x80000000 ? qp->qkey : wr->wr.ud.remote_qkey;
	msg.v[4] = attr->grh.flow_label;
	msg.v[5] = attr->grh.hop_limit << 8 | attr->grh.traffic_class;
	msg.v[6] = attr->grh.sgid_index;
	msg.v[7] = wr->imm_data;
	memcpy(msg.gid, attr->grh.dgid.raw, sizeof(msg.gid));
	qp->sq[msg.id % qp->cap.max_send_wr] = wr->wr_id;
	err = fab_send(ctx_of(qp->qp.context)->ctl, &msg, data, len);
	if (!err)
		qp->sq_next++;
	return err;
}

int fab_post_send(struct ibv_qp *handle, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int err = 0;

	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_QP, handle, "ibv_post_send")) {
		*bad = wr;
		err = EINVAL;
	}
	for (; !err && wr; wr = wr->next) {
		err = post_one(qp_of(handle), wr);
		if (err)
			*bad = wr;
	}
	pthread_mutex_unlock(&fab_lock);
	return err;
}

static int queue_recv(struct fab_qp *qp, const struct ibv_recv_wr *wr)
{
	struct fab_recv *wqe;
	int i;

	if (qp->qp.state == IBV_QPS_RESET) {
		fab_violation("ibv_post_recv: QP 0x%x is in state reset", qp->qp.qp_num);
		return EINVAL;
	}
	if (qp->rq_count >= qp->cap.max_recv_wr) {
		fab_violation("ibv_post_recv: the receive queue of QP 0x%x is full (%u)", qp->qp.qp_num,
			      qp->cap.max_recv_wr);
		return ENOMEM;
	}
	if (wr->num_sge < 0 || wr->num_sge > (int)qp->cap.max_recv_sge) {
		fab_violation("ibv_post_recv: %d elements, QP 0x%x has %u", wr->num_sge, qp->qp.qp_num,
			      qp->cap.max_recv_sge);
		return EINVAL;
	}
	for (i = 0; i < wr->num_sge; i++)
		/* Told here, where it is easy to find; it takes effect when a datagram comes. */
		fab_check_sge(qp->qp.pd, &wr->sg_list[i], true, "ibv_post_recv");
	wqe = &qp->rq[(qp->rq_head + qp->rq_count++) % qp->cap.max_recv_wr];
	wqe->wr_id = wr->wr_id;
	wqe->num_sge = wr->num_sge;
	memcpy(wqe->sge, wr->sg_list, wr->num_sge * sizeof(wqe->sge[0]));
	return 0;
}

int fab_post_recv(struct ibv_qp *handle, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fab_msg msg = { .op = FAB_POST_RECV };
	struct fab_qp *qp;
	int err = 0;

	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_QP, handle, "ibv_post_recv")) {
		*bad = wr;
		pthread_mutex_unlock(&fab_lock);
		return EINVAL;
	}
	qp = qp_of(handle);
	for (; wr; wr = wr->next) {
		err = queue_recv(qp, wr);
		if (err) {
			*bad = wr;
			break;
		}
		msg.v[0]++;
	}
	if (msg.v[0]) {
		msg.obj = handle->qp_num;
		msg.flags = 0;
		fab_send(ctx_of(handle->context)->ctl, &msg, NULL, 0);
	}
	pthread_mutex_unlock(&fab_lock);
	return err;
}
