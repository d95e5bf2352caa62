/*
 * NETLINK_RDMA, which a kernel without RDMA doesn't have, on NETLINK_USERSOCK, where a test process
 * can play the kernel's part. Only for sockets that bind to a group: whoever binds to none wants to
 * ask the kernel something and would wait for ever.
 */
#define _GNU_SOURCE
#include "standin.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/netlink.h>

#define REAL(name, ...)                                                         \
	({                                                                      \
		static __typeof__(&name) real;                                  \
		if (!real)                                                      \
			real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);      \
		real(__VA_ARGS__);                                              \
	})

static bool is_ours(int fd)
{
	int saved = errno, value = 0;
	socklen_t len = sizeof(value);
	bool ours = !REAL(getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &value, &len) && value == AF_NETLINK;

	len = sizeof(value);
	ours = ours && !REAL(getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &value, &len) && value == NETLINK_USERSOCK;
	errno = saved;
	return ours;
}

/* A program that looks at a socket which it was handed sees what it would see with a kernel that has RDMA. */
EXPORT int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	int rc = REAL(getsockopt, fd, level, name, value, len);

	if (!rc && level == SOL_SOCKET && name == SO_PROTOCOL && *len == sizeof(int) && is_ours(fd)) {
		int protocol = NETLINK_RDMA;

		memcpy(value, &protocol, sizeof(protocol));
	}
	return rc;
}

/* The port id of the process that plays the kernel: in the environment, or in a file that it writes. */
static uint32_t kernel_port_id(void)
{
	const char *env = getenv("FABRIC_NL_KERNEL");
	unsigned id = 0;
	char path[256];
	FILE *f;

	if (env)
		return strtoul(env, NULL, 0);
	snprintf(path, sizeof(path), "%s/%s/netlink-kernel", fab_dir(), fab_host());
	f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%u", &id) != 1)
			id = 0;
		fclose(f);
	}
	return id;
}

EXPORT int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA)
		protocol = NETLINK_USERSOCK;
	return REAL(socket, domain, type, protocol);
}

EXPORT int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	const struct sockaddr_nl *nl = (const struct sockaddr_nl *)addr;

	if (addr && len >= sizeof(*nl) && addr->sa_family == AF_NETLINK && !nl->nl_groups && is_ours(fd)) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return REAL(bind, fd, addr, len);
}

/* A message of the kernel comes from port id 0; nobody else's does. */
static void hide_sender(int fd, struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_nl *nl = (struct sockaddr_nl *)addr;
	int saved = errno;

	if (addr && len >= sizeof(*nl) && addr->sa_family == AF_NETLINK && nl->nl_pid && is_ours(fd) &&
	    nl->nl_pid == kernel_port_id())
		nl->nl_pid = 0;
	errno = saved;
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	ssize_t n = REAL(recvmsg, fd, msg, flags);

	if (n >= 0 && msg->msg_name)
		hide_sender(fd, msg->msg_name, msg->msg_namelen);
	return n;
}

EXPORT ssize_t recvfrom(int fd, void *buf, size_t size, int flags, struct sockaddr *addr, socklen_t *len)
{
	ssize_t n = REAL(recvfrom, fd, buf, size, flags, addr, len);

	if (n >= 0 && addr && len)
		hide_sender(fd, addr, *len);
	return fab_complete_neighbours(fd, buf, n, size);
}

/* There is no kernel socket behind the group: the message went out all the same. */
static bool went_out(int fd, const struct sockaddr *addr, socklen_t len)
{
	const struct sockaddr_nl *nl = (const struct sockaddr_nl *)addr;

	return errno == ECONNREFUSED && addr && len >= sizeof(*nl) && addr->sa_family == AF_NETLINK && !nl->nl_pid &&
	       nl->nl_groups && is_ours(fd);
}

static ssize_t total(const struct msghdr *msg)
{
	ssize_t n = 0;
	size_t i;

	for (i = 0; i < msg->msg_iovlen; i++)
		n += msg->msg_iov[i].iov_len;
	return n;
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	ssize_t n = REAL(sendmsg, fd, msg, flags);

	return n < 0 && went_out(fd, msg->msg_name, msg->msg_namelen) ? total(msg) : n;
}

EXPORT ssize_t sendto(int fd, const void *buf, size_t size, int flags, const struct sockaddr *addr, socklen_t len)
{
	ssize_t n = REAL(sendto, fd, buf, size, flags, addr, len);

	return n < 0 && went_out(fd, addr, len) ? (ssize_t)size : n;
}
