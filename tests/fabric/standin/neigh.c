/*
 * Hardware addresses of neighbours. The kernel keeps none for the simulated IPoIB interfaces: those of
 * neighbours that it knows are in files of the host's, one for each IP address.
 */
#define _GNU_SOURCE
#include "standin.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#define HW_BYTES 20
#define KNOWN (NUD_PERMANENT | NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE)
#define MOST_BYTES 65536

static bool read_hw(int family, const void *ip, uint8_t *hw)
{
	char text[INET6_ADDRSTRLEN], path[256], line[128];
	unsigned byte;
	bool ok;
	FILE *f;
	int i;

	if (!inet_ntop(family, ip, text, sizeof(text)))
		return false;
	snprintf(path, sizeof(path), "%s/%s/neighbours/%s", fab_dir(), fab_host(), text);
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fgets(line, sizeof(line), f) != NULL;
	fclose(f);
	for (i = 0; ok && i < HW_BYTES; i++) {
		ok = sscanf(line + i * 3, "%2x", &byte) == 1;
		hw[i] = byte;
	}
	return ok;
}

/* The hardware address that an entry ought to have; false if it is to stay as it is. */
static bool missing_hw(struct nlmsghdr *h, uint8_t *hw)
{
	struct ndmsg *nd = NLMSG_DATA(h);
	int left = (int)NLMSG_PAYLOAD(h, sizeof(*nd));
	struct rtattr *attr = (struct rtattr *)((char *)nd + NLMSG_ALIGN(sizeof(*nd)));
	const void *ip = NULL;

	if (left < 0 || !(nd->ndm_state & KNOWN))
		return false;
	for (; RTA_OK(attr, left); attr = RTA_NEXT(attr, left)) {
		if (attr->rta_type == NDA_LLADDR && RTA_PAYLOAD(attr) == HW_BYTES)
			return false;
		if (attr->rta_type == NDA_DST && RTA_PAYLOAD(attr) == (nd->ndm_family == AF_INET ? 4 : 16))
			ip = RTA_DATA(attr);
	}
	return ip && read_hw(nd->ndm_family, ip, hw);
}

static bool is_route(int fd)
{
	int value = 0;
	socklen_t len = sizeof(value);
	bool ours = !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &len) && value == AF_NETLINK;

	len = sizeof(value);
	return ours && !getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &value, &len) && value == NETLINK_ROUTE;
}

/* Adds to what was received the hardware addresses that are missing; the new number of bytes. */
ssize_t fab_complete_neighbours(int fd, void *buf, ssize_t n, size_t size)
{
	struct nlmsghdr *h = buf;
	static __thread char out[MOST_BYTES];
	size_t used = 0, room = size < sizeof(out) ? size : sizeof(out);
	int saved = errno, left = (int)n;

	if (n < (ssize_t)sizeof(*h) || (size_t)n > size ||
	    (h->nlmsg_type != RTM_NEWNEIGH && h->nlmsg_type != RTM_DELNEIGH) || !is_route(fd))
		goto as_it_is;
	for (; NLMSG_OK(h, (unsigned)left); h = NLMSG_NEXT(h, left)) {
		size_t length = NLMSG_ALIGN(h->nlmsg_len);
		uint8_t hw[HW_BYTES];
		bool neigh = h->nlmsg_type == RTM_NEWNEIGH || h->nlmsg_type == RTM_DELNEIGH;
		bool more = neigh && missing_hw(h, hw);

		if (used + length + RTA_SPACE(HW_BYTES) > room)
			goto as_it_is;
		memset(out + used, 0, length);
		memcpy(out + used, h, h->nlmsg_len);
		if (more) {
			/* the last of several attributes counts */
			struct rtattr *attr = (struct rtattr *)(out + used + length);

			attr->rta_type = NDA_LLADDR;
			attr->rta_len = RTA_LENGTH(HW_BYTES);
			memcpy(RTA_DATA(attr), hw, HW_BYTES);
			length += RTA_SPACE(HW_BYTES);
			((struct nlmsghdr *)(out + used))->nlmsg_len = length;
		}
		used += length;
	}
	memcpy(buf, out, used);
	n = (ssize_t)used;
as_it_is:
	errno = saved;
	return n;
}
