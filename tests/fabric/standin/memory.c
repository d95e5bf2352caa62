/* Protection domains and memory regions. */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>
#include <stdlib.h>

/* Keys are never used twice in the life of a process, so that a stale one is found out. */
static uint32_t next_key = 0x1200;

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct fab_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_CONTEXT, context, "ibv_alloc_pd")) {
		pthread_mutex_unlock(&fab_lock);
		free(pd);
		errno = EINVAL;
		return NULL;
	}
	pd->pd.context = context;
	pd->pd.handle = next_key++;
	fab_add(&pd->obj, FAB_PD, &pd->pd, context);
	pthread_mutex_unlock(&fab_lock);
	return &pd->pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *handle)
{
	int err = 0;

	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_PD, handle, "ibv_dealloc_pd")) {
		err = EINVAL;
	} else if (fab_child(handle, FAB_MR) || fab_child(handle, FAB_AH) || fab_child(handle, FAB_QP)) {
		fab_violation("ibv_dealloc_pd: the protection domain still has objects");
		err = EBUSY;
	} else {
		struct fab_pd *pd = OBJ_OF(fab_pd, pd, handle);

		fab_remove(&pd->obj);
		free(pd);
	}
	pthread_mutex_unlock(&fab_lock);
	return err;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned int access)
{
	struct fab_mr *mr = calloc(1, sizeof(*mr));
	int err = 0;

	if (!mr)
		return NULL;
	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_PD, pd, "ibv_reg_mr")) {
		err = EINVAL;
	} else if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
		   !(access & IBV_ACCESS_LOCAL_WRITE)) {
		fab_violation("ibv_reg_mr: remote write access without local write access");
		err = EINVAL;
	}
	if (err) {
		pthread_mutex_unlock(&fab_lock);
		free(mr);
		errno = err;
		return NULL;
	}
	mr->mr.context = pd->context;
	mr->mr.pd = pd;
	mr->mr.addr = addr;
	mr->mr.length = length;
	mr->mr.lkey = mr->mr.rkey = next_key << 8 | 0x5a;
	mr->mr.handle = next_key++;
	mr->access = access;
	fab_add(&mr->obj, FAB_MR, &mr->mr, pd);
	pthread_mutex_unlock(&fab_lock);
	return &mr->mr;
}

#undef ibv_reg_mr
EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return reg_mr(pd, addr, length, access);
}

#undef ibv_reg_mr_iova
EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	if (iova != (uintptr_t)addr) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return reg_mr(pd, addr, length, access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       unsigned int access)
{
	return ibv_reg_mr_iova(pd, addr, length, iova, access & ~IBV_ACCESS_OPTIONAL_RANGE);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *handle)
{
	int err = 0;

	pthread_mutex_lock(&fab_lock);
	if (fab_expect(FAB_MR, handle, "ibv_dereg_mr")) {
		struct fab_mr *mr = mr_of(handle);

		fab_remove(&mr->obj);
		free(mr);
	} else {
		err = EINVAL;
	}
	pthread_mutex_unlock(&fab_lock);
	return err;
}

/* May the HCA read (or write) what this element points to, on behalf of this protection domain? */
bool fab_check_sge(struct ibv_pd *pd, const struct ibv_sge *sge, bool write, const char *what)
{
	struct fab_mr *mr = fab_mr_by_lkey(pd, sge->lkey);
	uint64_t start, end;

	if (!sge->length)
		return true;
	if (!mr) {
		fab_violation("%s: lkey 0x%x names no memory region of this protection domain", what, sge->lkey);
		return false;
	}
	start = (uintptr_t)mr->mr.addr;
	end = start + mr->mr.length;
	if (sge->addr < start || sge->addr > end || end - sge->addr < sge->length) {
		fab_violation("%s: %u bytes at 0x%llx are outside of their memory region", what, sge->length,
			      (unsigned long long)sge->addr);
		return false;
	}
	if (write && !(mr->access & IBV_ACCESS_LOCAL_WRITE)) {
		fab_violation("%s: the memory region has no local write access", what);
		return false;
	}
	return true;
}
