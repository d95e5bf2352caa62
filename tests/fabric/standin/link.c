/* The way to the switch process: connections, requests and their replies. */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Inside a host the subnet's directory is mounted here, whatever its name is outside. */
const char *fab_dir(void)
{
	const char *dir = getenv("FABRIC_DIR");

	return dir && *dir ? dir : "/run/fabric";
}

const char *fab_host(void)
{
	const char *host = getenv("FABRIC_HOST");

	return host ? host : "";
}

static int send_all(int fd, struct fab_msg *msg, const void *payload, size_t len)
{
	struct iovec iov[2] = { { msg, sizeof(*msg) }, { (void *)payload, len } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = len ? 2 : 1 };
	ssize_t n;

	if (len > FAB_MAX_PAYLOAD)
		return EMSGSIZE;
	msg->len = len;
	do
		n = sendmsg(fd, &mh, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	/* A switch that is gone is a device that was pulled out. */
	return n < 0 ? EIO : 0;
}

int fab_send(int fd, struct fab_msg *msg, const void *payload, size_t len)
{
	return send_all(fd, msg, payload, len);
}

/*
 * Sends a request and waits for its reply, which replaces *msg. The caller holds fab_lock, which
 * keeps requests and replies of one connection in pairs.
 */
int fab_call(int fd, struct fab_msg *msg, const void *payload, size_t len, void *reply, size_t room)
{
	struct iovec iov[2] = { { msg, sizeof(*msg) }, { reply, room } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = reply ? 2 : 1 };
	ssize_t n;
	int err = send_all(fd, msg, payload, len);

	if (err)
		return err;
	do
		n = recvmsg(fd, &mh, 0);
	while (n < 0 && errno == EINTR);
	if (n < (ssize_t)sizeof(*msg))
		return EIO;
	return msg->err;
}

/* Opens a connection and introduces it. Returns the descriptor or -1 with errno. */
int fab_open_link(uint32_t kind, uint64_t id, uint32_t obj, uint32_t port, const char *device)
{
	uint64_t name;

	return fab_open_named(kind, id, obj, port, device, &name);
}

/* The same; *name is what the switch calls the connection. */
int fab_open_named(uint32_t kind, uint64_t id, uint32_t obj, uint32_t port, const char *device, uint64_t *name)
{
	struct fab_msg msg = { .op = FAB_HELLO, .flags = kind, .id = id, .obj = obj, .port = port,
			       .index = FAB_VERSION, .v = { getpid() } };
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	char names[160];
	int fd, err, n;

	if (!*fab_host()) {
		errno = ENODEV;
		return -1;
	}
	n = snprintf(names, sizeof(names), "%s%c%s", fab_host(), 0, device ? device : "");
	if (n >= (int)sizeof(names) ||
	    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/switch.sock", fab_dir()) >= (int)sizeof(addr.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		err = ENODEV;
	} else {
		err = fab_call(fd, &msg, names, n, NULL, 0);
	}
	if (err) {
		close(fd);
		errno = err;
		return -1;
	}
	*name = msg.id;
	return fd;
}

/* A short connection for questions about a device (NULL: about the host). */
int fab_ask(const char *device)
{
	struct fab_msg msg = { .op = FAB_OPEN, .flags = 1 };
	int fd = fab_open_link(FAB_CONN_CONTROL, 0, 0, 0, NULL);
	int err;

	if (fd < 0 || !device)
		return fd;
	err = fab_call(fd, &msg, device, strlen(device), NULL, 0);
	if (err) {
		close(fd);
		errno = err;
		return -1;
	}
	return fd;
}
