/* The tables of a port: GIDs and partition keys. */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>
#include <string.h>

int fab_port_info(int ctl, uint32_t port, struct fab_port *out)
{
	struct fab_msg msg = { .op = FAB_PORT, .port = port };
	int err = fab_call(ctl, &msg, NULL, 0, out, sizeof(*out));

	return !err && msg.len != sizeof(*out) ? EIO : err;
}

static int query_gid(struct ibv_context *context, uint32_t port, uint32_t index, union ibv_gid *gid)
{
	struct fab_msg msg = { .op = FAB_GID, .port = port, .index = index };
	int err = EINVAL;

	pthread_mutex_lock(&fab_lock);
	if (fab_expect(FAB_CONTEXT, context, "ibv_query_gid"))
		err = fab_call(ctx_of(context)->ctl, &msg, NULL, 0, NULL, 0);
	pthread_mutex_unlock(&fab_lock);
	if (!err)
		memcpy(gid->raw, msg.gid, sizeof(gid->raw));
	return err;
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	int err = index < 0 ? EINVAL : query_gid(context, port, index, gid);

	if (err) {
		errno = err;
		return -1;
	}
	return 0;
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
			     struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct ibv_gid_entry full = { .gid_index = index, .port_num = port, .gid_type = IBV_GID_TYPE_IB };
	static const union ibv_gid zero;
	int err;

	if (flags)
		return EOPNOTSUPP;
	err = query_gid(context, port, index, &full.gid);
	if (err)
		return err;
	/* The kernel answers for valid entries only. */
	if (!memcmp(&full.gid, &zero, sizeof(zero)))
		return ENODATA;
	memcpy(entry, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				    size_t max, uint32_t flags, size_t size)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	size_t n = 0;
	int p, i, err;

	if (flags || size > sizeof(*entries))
		return -EOPNOTSUPP;
	err = ibv_query_device(context, &device);
	for (p = 1; !err && p <= device.phys_port_cnt; p++) {
		err = ibv_query_port(context, p, &port);
		for (i = 0; !err && i < port.gid_tbl_len; i++) {
			struct ibv_gid_entry entry;
			int e = _ibv_query_gid_ex(context, p, i, &entry, 0, sizeof(entry));

			if (e == ENODATA)
				continue;
			if (e || n == max)
				return e ? -e : -EINVAL;
			memcpy((char *)entries + n++ * size, &entry, size);
		}
	}
	return err ? -err : (ssize_t)n;
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	struct fab_msg msg = { .op = FAB_PKEY, .port = port, .index = index };
	int err = EINVAL;

	pthread_mutex_lock(&fab_lock);
	if (fab_expect(FAB_CONTEXT, context, "ibv_query_pkey") && index >= 0)
		err = fab_call(ctx_of(context)->ctl, &msg, NULL, 0, NULL, 0);
	pthread_mutex_unlock(&fab_lock);
	if (err) {
		errno = err;
		return -1;
	}
	*pkey = htobe16(msg.v[0]);
	return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	__be16 entry;
	int i;

	for (i = 0; !ibv_query_pkey(context, port, i, &entry); i++)
		if (entry == pkey)
			return i;
	return -1;
}
