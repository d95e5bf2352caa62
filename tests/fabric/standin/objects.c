/* The list of live objects: what exists, what belongs to what. */
#include "standin.h"

pthread_mutex_t fab_lock = PTHREAD_MUTEX_INITIALIZER;

static struct fab_obj *objects;

static const char *const kind_name[] = {
	[FAB_CONTEXT] = "device context", [FAB_PD] = "protection domain", [FAB_MR] = "memory region",
	[FAB_AH] = "address handle",	  [FAB_CHANNEL] = "completion channel", [FAB_CQ] = "completion queue",
	[FAB_QP] = "queue pair",
};

void fab_add(struct fab_obj *obj, enum fab_kind kind, void *handle, void *parent)
{
	obj->kind = kind;
	obj->handle = handle;
	obj->parent = parent;
	obj->next = objects;
	objects = obj;
}

void fab_remove(struct fab_obj *obj)
{
	struct fab_obj **at;

	for (at = &objects; *at; at = &(*at)->next) {
		if (*at == obj) {
			*at = obj->next;
			return;
		}
	}
}

bool fab_live(enum fab_kind kind, const void *handle)
{
	struct fab_obj *obj;

	for (obj = objects; obj; obj = obj->next)
		if (obj->kind == kind && obj->handle == handle)
			return true;
	return false;
}

/* As fab_live(), for an argument of a call: anything else than a live object is the caller's fault. */
bool fab_expect(enum fab_kind kind, const void *handle, const char *call)
{
	if (handle && fab_live(kind, handle))
		return true;
	fab_violation("%s: %p is no live %s", call, handle, kind_name[kind]);
	return false;
}

struct fab_obj *fab_child(const void *parent, enum fab_kind kind)
{
	struct fab_obj *obj;

	for (obj = objects; obj; obj = obj->next)
		if (obj->parent == parent && obj->kind == kind)
			return obj;
	return NULL;
}

struct fab_obj *fab_find(bool (*match)(const struct fab_obj *, const void *), const void *arg)
{
	struct fab_obj *obj;

	for (obj = objects; obj; obj = obj->next)
		if (match(obj, arg))
			return obj;
	return NULL;
}

struct fab_qp *fab_qp_by_number(const struct ibv_context *context, uint32_t qpn)
{
	struct fab_obj *obj;

	for (obj = objects; obj; obj = obj->next) {
		if (obj->kind == FAB_QP) {
			struct fab_qp *qp = OBJ_OF(fab_qp, obj, obj);

			if (qp->qp.context == context && qp->qp.qp_num == qpn)
				return qp;
		}
	}
	return NULL;
}

struct fab_cq *fab_cq_by_handle(const struct ibv_context *context, uint32_t handle)
{
	struct fab_obj *obj;

	for (obj = objects; obj; obj = obj->next) {
		if (obj->kind == FAB_CQ) {
			struct fab_cq *cq = OBJ_OF(fab_cq, obj, obj);

			if (cq->cq.context == context && cq->cq.handle == handle)
				return cq;
		}
	}
	return NULL;
}

struct fab_mr *fab_mr_by_lkey(const struct ibv_pd *pd, uint32_t lkey)
{
	struct fab_obj *obj;

	for (obj = objects; obj; obj = obj->next) {
		if (obj->kind == FAB_MR && obj->parent == pd) {
			struct fab_mr *mr = OBJ_OF(fab_mr, obj, obj);

			if (mr->mr.lkey == lkey)
				return mr;
		}
	}
	return NULL;
}
