/*
 * libnl's hardware address of a link. The simulated IPoIB interfaces have theirs in a file in sysfs,
 * where netlink doesn't look.
 */
#define _GNU_SOURCE
#include "standin.h"

#include <dlfcn.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <string.h>

#define HW_BYTES 20
#define MAX_LINKS 64

struct rtnl_link;
struct nl_addr;

struct nl_addr *rtnl_link_get_addr(struct rtnl_link *link);

/* Made once for each interface and kept, for the caller doesn't own what it gets. */
static struct {
	char name[32];
	uint8_t hw[HW_BYTES];
	struct nl_addr *addr;
} cache[MAX_LINKS];

static bool read_hw(const char *name, uint8_t *hw)
{
	char path[128], text[128];
	unsigned byte;
	bool ok;
	FILE *f;
	int i;

	snprintf(path, sizeof(path), "/sys/class/net/%s/address", name);
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fgets(text, sizeof(text), f) != NULL;
	fclose(f);
	for (i = 0; ok && i < HW_BYTES; i++) {
		ok = sscanf(text + i * 3, "%2x", &byte) == 1;
		hw[i] = byte;
	}
	return ok;
}

EXPORT struct nl_addr *rtnl_link_get_addr(struct rtnl_link *link)
{
	struct nl_addr *(*real)(struct rtnl_link *) = dlsym(RTLD_NEXT, "rtnl_link_get_addr");
	unsigned (*arptype)(struct rtnl_link *) = dlsym(RTLD_DEFAULT, "rtnl_link_get_arptype");
	const char *(*name_of)(struct rtnl_link *) = dlsym(RTLD_DEFAULT, "rtnl_link_get_name");
	struct nl_addr *(*build)(int, const void *, size_t) = dlsym(RTLD_DEFAULT, "nl_addr_build");
	struct nl_addr *result = NULL;
	uint8_t hw[HW_BYTES];
	const char *name;
	int i;

	if (!arptype || !name_of || !build || arptype(link) != ARPHRD_INFINIBAND)
		return real ? real(link) : NULL;
	name = name_of(link);
	if (!name || !read_hw(name, hw))
		return real ? real(link) : NULL;
	pthread_mutex_lock(&fab_lock);
	for (i = 0; i < MAX_LINKS && cache[i].addr; i++)
		if (!strcmp(cache[i].name, name) && !memcmp(cache[i].hw, hw, sizeof(hw)))
			break;
	if (i < MAX_LINKS) {
		if (!cache[i].addr) {
			snprintf(cache[i].name, sizeof(cache[i].name), "%s", name);
			memcpy(cache[i].hw, hw, sizeof(hw));
			cache[i].addr = build(26 /* AF_LLC, as libnl has it for links */, hw, sizeof(hw));
		}
		result = cache[i].addr;
	}
	pthread_mutex_unlock(&fab_lock);
	return result;
}
