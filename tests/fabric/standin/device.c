/* Devices: the list, opening and closing, what a device says about itself. */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_DEVICES 64

/* Devices are never freed: a program may hold one for as long as it has it open. */
struct known {
	struct ibv_device device;
	struct fab_device info;
};

static struct known *known[MAX_DEVICES];

static struct known *remember(const struct fab_device *info)
{
	struct known *k;
	int i;

	for (i = 0; i < MAX_DEVICES && known[i]; i++)
		if (!strcmp(known[i]->info.name, info->name))
			break;
	if (i == MAX_DEVICES)
		return NULL;
	k = known[i];
	if (!k) {
		k = known[i] = calloc(1, sizeof(*k));
		if (!k)
			return NULL;
		k->device.node_type = IBV_NODE_CA;
		k->device.transport_type = IBV_TRANSPORT_IB;
		snprintf(k->device.name, sizeof(k->device.name), "%.39s", info->name);
		snprintf(k->device.dev_name, sizeof(k->device.dev_name), "uverbs%u", info->index);
		snprintf(k->device.dev_path, sizeof(k->device.dev_path),
			 "/sys/class/infiniband_verbs/uverbs%u", info->index);
		snprintf(k->device.ibdev_path, sizeof(k->device.ibdev_path), "/sys/class/infiniband/%.39s",
			 info->name);
	}
	k->info = *info;
	return k;
}

static struct known *known_of(struct ibv_device *device)
{
	int i;

	for (i = 0; i < MAX_DEVICES && known[i]; i++)
		if (&known[i]->device == device)
			return known[i];
	return NULL;
}

EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	struct fab_msg msg = { .op = FAB_LIST };
	struct fab_device info[MAX_DEVICES];
	struct ibv_device **list = NULL;
	int fd, err = 0, count = 0, i, n = 0;

	if (num)
		*num = 0;
	pthread_mutex_lock(&fab_lock);
	fd = fab_ask(NULL);
	if (fd >= 0) {
		err = fab_call(fd, &msg, NULL, 0, info, sizeof(info));
		close(fd);
		if (!err)
			count = msg.len / sizeof(info[0]);
	}
	list = calloc(count + 1, sizeof(*list));
	for (i = 0; list && i < count; i++) {
		struct known *k = remember(&info[i]);

		if (k)
			list[n++] = &k->device;
	}
	pthread_mutex_unlock(&fab_lock);
	if (num)
		*num = n;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	struct known *k = known_of(device);

	return k ? k->info.node_guid : 0;
}

EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	struct known *k = known_of(device);

	return k ? (int)k->info.index : -1;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t len);
static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t size);

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct fab_msg msg = { .op = FAB_OPEN };
	struct fab_context *ctx = calloc(1, sizeof(*ctx));
	struct ibv_context *c;
	int err;

	if (!ctx)
		return NULL;
	c = &ctx->verbs.context;
	pthread_mutex_lock(&fab_lock);
	ctx->ctl = fab_open_link(FAB_CONN_CONTROL, 0, 0, 0, NULL);
	err = ctx->ctl < 0 ? errno : fab_call(ctx->ctl, &msg, device->name, strlen(device->name), NULL, 0);
	if (!err) {
		ctx->id = msg.id;
		c->async_fd = fab_open_link(FAB_CONN_ASYNC, ctx->id, 0, 0, NULL);
		if (c->async_fd < 0)
			err = errno;
	}
	if (err) {
		if (ctx->ctl >= 0)
			close(ctx->ctl);
		free(ctx);
		pthread_mutex_unlock(&fab_lock);
		errno = err;
		return NULL;
	}
	c->device = device;
	c->cmd_fd = ctx->ctl;
	c->num_comp_vectors = 1;
	c->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&c->mutex, NULL);
	c->ops.poll_cq = fab_poll_cq;
	c->ops.req_notify_cq = fab_req_notify;
	c->ops.post_send = fab_post_send;
	c->ops.post_recv = fab_post_recv;
	ctx->verbs.sz = sizeof(ctx->verbs);
	ctx->verbs.query_port = query_port;
	ctx->verbs.query_device_ex = query_device_ex;
	fab_add(&ctx->obj, FAB_CONTEXT, c, NULL);
	pthread_mutex_unlock(&fab_lock);
	return c;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	static const enum fab_kind kinds[] = { FAB_PD, FAB_CHANNEL, FAB_CQ };
	struct fab_context *ctx;
	size_t i;

	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_CONTEXT, context, "ibv_close_device")) {
		pthread_mutex_unlock(&fab_lock);
		return EINVAL;
	}
	ctx = ctx_of(context);
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (fab_child(context, kinds[i])) {
			fab_violation("ibv_close_device: the device still has objects");
			break;
		}
	}
	if (ctx->async_seen != ctx->async_acked)
		fab_violation("ibv_close_device: %u asynchronous events were not acknowledged",
			      ctx->async_seen - ctx->async_acked);
	fab_remove(&ctx->obj);
	close(ctx->ctl);
	close(context->async_fd);
	pthread_mutex_unlock(&fab_lock);
	free(ctx);
	return 0;
}

static int fill_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct known *k = known_of(context->device);

	if (!k)
		return EINVAL;
	memset(attr, 0, sizeof(*attr));
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "20.31.1014");
	attr->node_guid = k->info.node_guid;
	attr->sys_image_guid = k->info.node_guid;
	attr->max_mr_size = UINT64_MAX;
	attr->page_size_cap = 0xfffffffffffff000ULL;
	attr->vendor_id = k->info.vendor_id;
	attr->vendor_part_id = k->info.part_id;
	attr->max_qp = 4096;
	attr->max_qp_wr = MAX_QP_WR;
	/* Two numbers, as some adapters have, for programs that mix them up. */
	attr->max_qp_rd_atom = 16;
	attr->max_qp_init_rd_atom = 128;
	attr->max_sge = MAX_SGE;
	attr->max_sge_rd = MAX_SGE;
	attr->max_cq = 4096;
	attr->max_cqe = MAX_CQE;
	attr->max_mr = 65536;
	attr->max_pd = 1024;
	attr->max_ah = 65536;
	attr->max_mcast_grp = 1024;
	attr->max_mcast_qp_attach = MAX_MCAST_ATTACH;
	attr->max_total_mcast_qp_attach = 1024 * MAX_MCAST_ATTACH;
	attr->max_pkeys = 128;
	attr->local_ca_ack_delay = 16;
	attr->phys_port_cnt = k->info.ports;
	return 0;
}

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	int err;

	pthread_mutex_lock(&fab_lock);
	err = fab_expect(FAB_CONTEXT, context, "ibv_query_device") ? fill_device(context, attr) : EINVAL;
	pthread_mutex_unlock(&fab_lock);
	return err;
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t size)
{
	(void)input;
	memset(attr, 0, size);
	return ibv_query_device(context, &attr->orig_attr);
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t len)
{
	struct ibv_port_attr full;
	struct fab_port p;
	int err;

	pthread_mutex_lock(&fab_lock);
	err = fab_expect(FAB_CONTEXT, context, "ibv_query_port") ?
		      fab_port_info(ctx_of(context)->ctl, port, &p) : EINVAL;
	pthread_mutex_unlock(&fab_lock);
	if (err)
		return err;
	memset(&full, 0, sizeof(full));
	full.state = p.state;
	full.max_mtu = p.max_mtu;
	full.active_mtu = p.active_mtu;
	full.gid_tbl_len = p.gid_tbl_len;
	full.port_cap_flags = p.cap_flags;
	full.port_cap_flags2 = p.cap_flags2;
	full.max_msg_sz = p.max_msg_sz;
	full.pkey_tbl_len = p.pkey_tbl_len;
	full.lid = p.lid;
	full.sm_lid = p.sm_lid;
	full.lmc = p.lmc;
	full.max_vl_num = p.max_vl;
	full.sm_sl = p.sm_sl;
	full.subnet_timeout = p.subnet_timeout;
	full.init_type_reply = p.init_type_reply;
	full.active_width = p.width;
	full.active_speed = p.speed;
	full.phys_state = p.phys_state;
	full.link_layer = p.link_layer;
	memcpy(attr, &full, len < sizeof(full) ? len : sizeof(full));
	return 0;
}

/* The exported function takes the structure as it was before port_cap_flags2. */
#undef ibv_query_port
EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port, (struct ibv_port_attr *)attr,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}
