/* What libibumad tells about devices and ports: sysfs in reality, the switch process here. */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/umad.h>

static int list(struct fab_device *info, int max)
{
	struct fab_msg msg = { .op = FAB_LIST };
	int fd, err, n = 0;

	pthread_mutex_lock(&fab_lock);
	fd = fab_ask(NULL);
	if (fd >= 0) {
		err = fab_call(fd, &msg, NULL, 0, info, max * sizeof(*info));
		close(fd);
		if (!err)
			n = msg.len / sizeof(*info);
	}
	pthread_mutex_unlock(&fab_lock);
	return n < max ? n : max;
}

EXPORT int umad_get_cas_names(char cas[][UMAD_CA_NAME_LEN], int max)
{
	struct fab_device info[UMAD_MAX_DEVICES];
	int i, n = list(info, UMAD_MAX_DEVICES);

	for (i = 0; i < n && i < max; i++)
		snprintf(cas[i], UMAD_CA_NAME_LEN, "%.*s", UMAD_CA_NAME_LEN - 1, info[i].name);
	return i;
}

EXPORT struct umad_device_node *umad_get_ca_device_list(void)
{
	struct fab_device info[UMAD_MAX_DEVICES];
	struct umad_device_node *head = NULL, *node;
	int i = list(info, UMAD_MAX_DEVICES);

	while (i-- > 0) {
		node = calloc(1, sizeof(*node));
		if (!node)
			break;
		node->ca_name = strdup(info[i].name);
		node->next = head;
		head = node;
	}
	if (!head)
		errno = 0;
	return head;
}

EXPORT void umad_free_ca_device_list(struct umad_device_node *head)
{
	struct umad_device_node *next;

	for (; head; head = next) {
		next = head->next;
		free((char *)head->ca_name);
		free(head);
	}
}

/* Opens a connection to ask about this device, or the first one. */
static int ask(const char *ca, struct fab_device *found)
{
	struct fab_device info[UMAD_MAX_DEVICES];
	int i, fd, n = list(info, UMAD_MAX_DEVICES);

	for (i = 0; i < n; i++)
		if (!ca || !*ca || !strcmp(info[i].name, ca))
			break;
	if (i == n)
		return -ENODEV;
	*found = info[i];
	pthread_mutex_lock(&fab_lock);
	fd = fab_ask(info[i].name);
	pthread_mutex_unlock(&fab_lock);
	return fd < 0 ? -ENODEV : fd;
}

/* In Gb/s, as sysfs has it. */
static unsigned rate_of(const struct fab_port *p)
{
	unsigned lanes = p->width == 1 ? 1 : p->width == 16 ? 2 : p->width == 4 ? 8 : p->width == 8 ? 12 : 4;

	switch (p->speed) {
	case 1: return lanes * 25 / 10;
	case 2: return lanes * 5;
	case 4:
	case 8: return lanes * 10;
	case 16: return lanes * 14;
	case 32: return lanes * 25;
	case 64: return lanes * 50;
	case 128: return lanes * 100;
	default: return 0;
	}
}

static int get_port(int ctl, const char *ca, int portnum, umad_port_t *port)
{
	struct fab_port p;
	unsigned i;
	int err;

	pthread_mutex_lock(&fab_lock);
	err = fab_port_info(ctl, portnum, &p);
	if (err)
		goto out;
	memset(port, 0, sizeof(*port));
	snprintf(port->ca_name, sizeof(port->ca_name), "%s", ca);
	port->portnum = portnum;
	port->base_lid = p.lid;
	port->lmc = p.lmc;
	port->sm_lid = p.sm_lid;
	port->sm_sl = p.sm_sl;
	port->state = p.state;
	port->phys_state = p.phys_state;
	port->rate = rate_of(&p);
	port->capmask = htobe32(p.cap_flags);
	port->gid_prefix = p.gid_prefix;
	port->port_guid = p.port_guid;
	snprintf(port->link_layer, sizeof(port->link_layer), "%s",
		 p.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
	port->pkeys_size = p.pkey_tbl_len;
	port->pkeys = calloc(p.pkey_tbl_len ? p.pkey_tbl_len : 1, sizeof(*port->pkeys));
	for (i = 0; port->pkeys && i < p.pkey_tbl_len; i++) {
		struct fab_msg msg = { .op = FAB_PKEY, .port = portnum, .index = i };

		if (!fab_call(ctl, &msg, NULL, 0, NULL, 0))
			port->pkeys[i] = msg.v[0];
	}
out:
	pthread_mutex_unlock(&fab_lock);
	return err ? -EIO : 0;
}

EXPORT int umad_get_port(const char *ca, int portnum, umad_port_t *port)
{
	struct fab_device info;
	int err, ctl = ask(ca, &info);

	if (ctl < 0)
		return ctl;
	err = get_port(ctl, info.name, portnum ? portnum : 1, port);
	close(ctl);
	return err;
}

EXPORT int umad_release_port(umad_port_t *port)
{
	free(port->pkeys);
	port->pkeys = NULL;
	port->pkeys_size = 0;
	return 0;
}

EXPORT int umad_release_ca(umad_ca_t *ca)
{
	int i;

	for (i = 0; i < UMAD_CA_MAX_PORTS; i++) {
		if (ca->ports[i]) {
			umad_release_port(ca->ports[i]);
			free(ca->ports[i]);
			ca->ports[i] = NULL;
		}
	}
	return 0;
}

EXPORT int umad_get_ca(const char *name, umad_ca_t *ca)
{
	struct fab_device info;
	int i, err = 0, ctl = ask(name, &info);

	if (ctl < 0)
		return ctl;
	memset(ca, 0, sizeof(*ca));
	snprintf(ca->ca_name, sizeof(ca->ca_name), "%.*s", UMAD_CA_NAME_LEN - 1, info.name);
	ca->node_type = 1;
	ca->numports = info.ports;
	snprintf(ca->fw_ver, sizeof(ca->fw_ver), "20.31.1014");
	snprintf(ca->ca_type, sizeof(ca->ca_type), "MT4123");
	snprintf(ca->hw_ver, sizeof(ca->hw_ver), "0");
	ca->node_guid = ca->system_guid = info.node_guid;
	for (i = 1; i <= ca->numports && i < UMAD_CA_MAX_PORTS && !err; i++) {
		ca->ports[i] = calloc(1, sizeof(umad_port_t));
		err = ca->ports[i] ? get_port(ctl, info.name, i, ca->ports[i]) : -ENOMEM;
	}
	close(ctl);
	if (err)
		umad_release_ca(ca);
	return err;
}

EXPORT int umad_get_ca_portguids(const char *name, __be64 *guids, int max)
{
	umad_ca_t ca;
	int i, err = umad_get_ca(name, &ca);

	if (err)
		return err;
	if (ca.numports + 1 > max) {
		umad_release_ca(&ca);
		return -ENOMEM;
	}
	for (i = 0; i <= ca.numports; i++)
		guids[i] = ca.ports[i] ? ca.ports[i]->port_guid : 0;
	umad_release_ca(&ca);
	return i;
}

/* There is no issm device: nobody but OpenSM manages this subnet. */
EXPORT int umad_get_issm_path(const char *ca, int portnum, char path[], int max)
{
	(void)ca;
	(void)portnum;
	if (max > 0)
		path[0] = 0;
	return -ENODEV;
}
