/*
 * Calls that this device doesn't have. Without these the real libibverbs would take the stand-in's
 * objects for its own.
 */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>

#define REFUSE_PTR(type, name, ...)      \
	EXPORT type name(__VA_ARGS__)    \
	{                                \
		errno = EOPNOTSUPP;      \
		return NULL;             \
	}

#define REFUSE_INT(name, ...)            \
	EXPORT int name(__VA_ARGS__)     \
	{                                \
		return EOPNOTSUPP;       \
	}

#pragma GCC diagnostic ignored "-Wunused-parameter"

REFUSE_PTR(struct ibv_context *, ibv_import_device, int fd)
REFUSE_PTR(struct ibv_pd *, ibv_import_pd, struct ibv_context *context, uint32_t handle)
REFUSE_PTR(struct ibv_mr *, ibv_import_mr, struct ibv_pd *pd, uint32_t handle)
REFUSE_PTR(struct ibv_mr *, ibv_reg_dmabuf_mr, struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
	   int fd, int access)
REFUSE_PTR(struct ibv_srq *, ibv_create_srq, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
REFUSE_INT(ibv_modify_srq, struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
REFUSE_INT(ibv_query_srq, struct ibv_srq *srq, struct ibv_srq_attr *attr)
REFUSE_INT(ibv_destroy_srq, struct ibv_srq *srq)
REFUSE_INT(ibv_rereg_mr, struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
REFUSE_INT(ibv_resize_cq, struct ibv_cq *cq, int cqe)
REFUSE_INT(ibv_set_ece, struct ibv_qp *qp, struct ibv_ece *ece)
REFUSE_INT(ibv_query_ece, struct ibv_qp *qp, struct ibv_ece *ece)
REFUSE_INT(ibv_resolve_eth_l2_from_gid, struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t mac[6],
	   uint16_t *vid)

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return NULL;
}

EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0;
}
