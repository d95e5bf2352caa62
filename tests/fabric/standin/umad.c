/*
 * libibumad's open ports: the descriptor is the connection itself. Transaction ids, time limits and
 * repeats are the kernel's business and so are done in the switch process.
 */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <infiniband/umad.h>

#define MAX_AGENTS 32
#define MAD_BYTES 256

struct open_port {
	struct open_port *next;
	int fd;
	uint64_t name;		/* of the connection, at the switch */
	bool agent[MAX_AGENTS];
	uint8_t mgmt_class[MAX_AGENTS];
};

static struct open_port *open_ports;
static bool layout_known;

static struct open_port *find(int fd, const char *call)
{
	struct open_port *p;

	for (p = open_ports; p; p = p->next)
		if (p->fd == fd)
			return p;
	fab_violation("%s: %d is no open port", call, fd);
	return NULL;
}

/* The real library learns the kernel's layout of the buffer when it opens a port, and takes the
 * one of old kernels until then. */
static void check_layout(const char *call)
{
	pthread_mutex_lock(&fab_lock);
	if (!layout_known)
		fab_violation("%s: called before any umad_open_port, gives the layout of old kernels", call);
	pthread_mutex_unlock(&fab_lock);
}

EXPORT void *umad_get_mad(void *umad)
{
	check_layout("umad_get_mad");
	return ((struct ib_user_mad *)umad)->data;
}

EXPORT size_t umad_size(void)
{
	check_layout("umad_size");
	return sizeof(struct ib_user_mad);
}

EXPORT int umad_set_pkey(void *umad, int pkey_index)
{
	check_layout("umad_set_pkey");
	((struct ib_user_mad *)umad)->addr.pkey_index = pkey_index;
	return 0;
}

EXPORT int umad_get_pkey(void *umad)
{
	check_layout("umad_get_pkey");
	return ((struct ib_user_mad *)umad)->addr.pkey_index;
}

EXPORT int umad_init(void)
{
	return 0;
}

EXPORT int umad_done(void)
{
	return 0;
}

static int open_link(const char *ca, int port, uint64_t *name)
{
	char names[1][UMAD_CA_NAME_LEN];
	int fd;

	if (!ca) {
		if (umad_get_cas_names(names, 1) < 1)
			return -ENODEV;
		ca = names[0];
	}
	pthread_mutex_lock(&fab_lock);
	fd = fab_open_named(FAB_CONN_UMAD, 0, 0, port ? port : 1, ca, name);
	pthread_mutex_unlock(&fab_lock);
	return fd < 0 ? -errno : fd;
}

EXPORT int umad_open_port(const char *ca, int port)
{
	struct open_port *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->fd = open_link(ca, port, &p->name);
	if (p->fd < 0) {
		int err = p->fd;

		free(p);
		return err;
	}
	pthread_mutex_lock(&fab_lock);
	p->next = open_ports;
	open_ports = p;
	layout_known = true;
	pthread_mutex_unlock(&fab_lock);
	return p->fd;
}

EXPORT int umad_close_port(int fd)
{
	struct open_port **at, *p;

	pthread_mutex_lock(&fab_lock);
	p = find(fd, "umad_close_port");
	for (at = &open_ports; p && *at; at = &(*at)->next) {
		if (*at == p) {
			*at = p->next;
			break;
		}
	}
	pthread_mutex_unlock(&fab_lock);
	if (!p)
		return -EBADF;
	free(p);
	close(fd);
	return 0;
}

EXPORT int umad_get_fd(int fd)
{
	return fd;
}

static int register_agent(int fd, uint32_t class, uint32_t version, uint32_t rmpp, const void *mask, uint32_t *agent)
{
	static const uint8_t none[16];
	struct fab_msg msg = { .op = FAB_UMAD_REGISTER, .v = { class, version, rmpp } };
	struct open_port *p;
	int err = EBADF, i, ctl;

	pthread_mutex_lock(&fab_lock);
	p = find(fd, "umad_register");
	for (i = 0; p && i < MAX_AGENTS && p->agent[i]; i++)
		;
	if (p && i < MAX_AGENTS) {
		msg.obj = i;
		msg.id = p->name;
		/* The mask names the methods to be delivered without having been asked for. */
		memcpy(msg.gid, mask ? mask : none, sizeof(msg.gid));
		/* Its own connection may have MADs before the reply. */
		ctl = fab_ask(NULL);
		err = ctl < 0 ? errno : fab_call(ctl, &msg, NULL, 0, NULL, 0);
		if (ctl >= 0)
			close(ctl);
		if (!err) {
			p->agent[i] = true;
			p->mgmt_class[i] = class;
			*agent = i;
		}
	} else if (p) {
		err = ENOMEM;
	}
	pthread_mutex_unlock(&fab_lock);
	return err;
}

EXPORT int umad_register(int fd, int class, int version, uint8_t rmpp, long mask[16 / sizeof(long)])
{
	uint32_t agent;

	return register_agent(fd, class, version, rmpp, mask, &agent) ? -EPERM : (int)agent;
}

EXPORT int umad_register_oui(int fd, int class, uint8_t rmpp, uint8_t oui[3], long mask[16 / sizeof(long)])
{
	(void)oui;
	if (class < 0x30 || class > 0x4f)
		return -EINVAL;
	return umad_register(fd, class, 1, rmpp, mask);
}

EXPORT int umad_register2(int fd, struct umad_reg_attr *attr, uint32_t *agent)
{
	if (!attr || !agent || (attr->mgmt_class >= 0x30 && attr->mgmt_class <= 0x4f && !(attr->oui & 0xffffff)))
		return EINVAL;
	return register_agent(fd, attr->mgmt_class, attr->mgmt_class_version, attr->rmpp_version, attr->method_mask,
			      agent);
}

EXPORT int umad_unregister(int fd, int agent)
{
	struct fab_msg msg = { .op = FAB_UMAD_UNREGISTER, .obj = agent };
	struct open_port *p;
	int err = -EINVAL;

	pthread_mutex_lock(&fab_lock);
	p = find(fd, "umad_unregister");
	if (p && agent >= 0 && agent < MAX_AGENTS && p->agent[agent]) {
		p->agent[agent] = false;
		err = -fab_send(fd, &msg, NULL, 0);
	} else if (p) {
		fab_violation("umad_unregister: agent %d is not registered", agent);
	}
	pthread_mutex_unlock(&fab_lock);
	return err;
}

EXPORT int umad_send(int fd, int agent, void *buffer, int length, int timeout_ms, int retries)
{
	struct fab_msg msg = { .op = FAB_UMAD_SEND, .obj = agent };
	struct ib_user_mad *umad = buffer;
	struct open_port *p;
	int err = EINVAL;

	umad->agent_id = agent;
	umad->timeout_ms = timeout_ms;
	umad->retries = retries;
	msg.v[0] = timeout_ms;
	msg.v[1] = retries;
	pthread_mutex_lock(&fab_lock);
	p = find(fd, "umad_send");
	if (!p) {
		err = EBADF;
	} else if (agent < 0 || agent >= MAX_AGENTS || !p->agent[agent]) {
		fab_violation("umad_send: agent %d is not registered", agent);
	} else if (length < 24 || length > MAD_BYTES) {
		fab_violation("umad_send: a MAD of %d bytes", length);
	} else if (((uint8_t *)umad->data)[1] != p->mgmt_class[agent]) {
		fab_violation("umad_send: class 0x%x by an agent of class 0x%x", ((uint8_t *)umad->data)[1],
			      p->mgmt_class[agent]);
	} else {
		err = fab_send(fd, &msg, umad, sizeof(*umad) + length);
	}
	pthread_mutex_unlock(&fab_lock);
	errno = err;
	return -err;
}

static int wait_readable(int fd, int timeout_ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	int n = poll(&pfd, 1, timeout_ms);

	if (n == 1)
		return 0;
	errno = n ? EIO : ETIMEDOUT;
	return -errno;
}

EXPORT int umad_poll(int fd, int timeout_ms)
{
	return wait_readable(fd, timeout_ms);
}

EXPORT int umad_recv(int fd, void *buffer, int *length, int timeout_ms)
{
	struct fab_msg msg;
	uint8_t data[sizeof(struct ib_user_mad) + MAD_BYTES];
	struct iovec iov[2] = { { &msg, sizeof(msg) }, { data, sizeof(data) } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2 };
	struct ib_user_mad *umad = buffer;
	ssize_t n;
	int room;

	errno = 0;
	if (!umad || !length) {
		errno = EINVAL;
		return -EINVAL;
	}
	if (timeout_ms && (n = wait_readable(fd, timeout_ms)) < 0)
		return n;
	/* The kernel's descriptor is opened non-blocking. */
	n = recvmsg(fd, &mh, MSG_DONTWAIT);
	if (n < 0)
		return -errno;
	if (n < (ssize_t)(sizeof(msg) + sizeof(*umad)) || msg.len < sizeof(*umad) || msg.len > sizeof(data)) {
		errno = EIO;
		return -EIO;
	}
	room = *length;
	n = msg.len - sizeof(*umad);
	if (room < n) {
		fab_violation("umad_recv: room for %d bytes, the MAD has %zd", room, n);
		*length = n;
		errno = ENOSPC;
		return -ENOSPC;
	}
	memcpy(umad, data, msg.len);
	*length = n;
	return umad->agent_id;
}
