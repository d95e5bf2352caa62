/* Address handles. */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int check_attr(struct ibv_context *context, const struct ibv_ah_attr *attr)
{
	struct fab_port port;
	int err = fab_port_info(ctx_of(context)->ctl, attr->port_num, &port);

	if (err) {
		fab_violation("ibv_create_ah: port %u: %s", attr->port_num, strerror(err));
		return EINVAL;
	}
	if (attr->sl > 15) {
		fab_violation("ibv_create_ah: service level %u", attr->sl);
		return EINVAL;
	}
	if (attr->is_global && attr->grh.sgid_index >= port.gid_tbl_len) {
		fab_violation("ibv_create_ah: SGID index %u, the port has %u", attr->grh.sgid_index, port.gid_tbl_len);
		return EINVAL;
	}
	if (attr->dlid == 0 && port.link_layer == IBV_LINK_LAYER_INFINIBAND) {
		fab_violation("ibv_create_ah: destination LID 0");
		return EINVAL;
	}
	if (attr->dlid >= 0xc000 && attr->dlid != 0xffff && !attr->is_global) {
		fab_violation("ibv_create_ah: multicast LID 0x%x without a GRH", attr->dlid);
		return EINVAL;
	}
	return 0;
}

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	static uint32_t handles;
	struct fab_ah *ah = calloc(1, sizeof(*ah));
	int err = EINVAL;

	if (!ah)
		return NULL;
	pthread_mutex_lock(&fab_lock);
	if (fab_expect(FAB_PD, pd, "ibv_create_ah"))
		err = check_attr(pd->context, attr);
	if (err) {
		pthread_mutex_unlock(&fab_lock);
		free(ah);
		errno = err;
		return NULL;
	}
	ah->ah.context = pd->context;
	ah->ah.pd = pd;
	ah->ah.handle = ++handles;
	ah->attr = *attr;
	fab_add(&ah->obj, FAB_AH, &ah->ah, pd);
	pthread_mutex_unlock(&fab_lock);
	return &ah->ah;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *handle)
{
	int err = 0;

	pthread_mutex_lock(&fab_lock);
	if (fab_expect(FAB_AH, handle, "ibv_destroy_ah")) {
		struct fab_ah *ah = ah_of(handle);

		fab_remove(&ah->obj);
		free(ah);
	} else {
		err = EINVAL;
	}
	pthread_mutex_unlock(&fab_lock);
	return err;
}

EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
			       struct ibv_ah_attr *attr)
{
	union ibv_gid gid;
	uint32_t flow;
	int i;

	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	attr->is_global = 1;
	attr->grh.dgid = grh->sgid;
	for (i = 0; !ibv_query_gid(context, port, i, &gid); i++)
		if (!memcmp(&gid, &grh->dgid, sizeof(gid)))
			break;
	if (memcmp(&gid, &grh->dgid, sizeof(gid)))
		return -1;
	flow = be32toh(grh->version_tclass_flow);
	attr->grh.sgid_index = i;
	attr->grh.flow_label = flow & 0xfffff;
	attr->grh.hop_limit = grh->hop_limit;
	attr->grh.traffic_class = flow >> 20 & 0xff;
	return 0;
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) ? NULL : ibv_create_ah(pd, &attr);
}
