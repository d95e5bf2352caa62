/* SPDX-License-Identifier: GPL-2.0-only OR Linux-OpenIB */
/*
 * A provider for ibacm that answers from a table in a file, to start your own from. It works in this project's service
 * and in rdma-core's.
 *
 *   cc -shared -fPIC -O2 -Wall -Wextra -o static_provider.so examples/static_provider.c -libverbs
 *
 * /etc/rdma/ibacm_opts.cfg says that it is used, and where its table is:
 *
 *   provider_lib_path /usr/lib/ibacm-providers
 *   provider static default
 *   static_table /etc/rdma/static_table.data
 *
 * The table has a line for each name or IP address. What is left out of the last three is as for the own port:
 *
 *   # address     GID                        LID  [SL [MTU in bytes [rate in Gb/s]]]
 *   node2         fe80::2:c903:0:1491        4
 *   10.77.0.2     fe80::2:c903:0:1491        4    0   2048  10
 *
 * GID and LID are what ibstat says on that host. MTU and rate may not be more than both ports and all links between them
 * have: `saquery -p --src-to-dst OWN:THEIRS`, or on the simulated subnet of this project 2048 and 10.
 *
 * The rules that it keeps, and that yours has to keep, are marked with "Rule:".
 */
#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <infiniband/acm_prov.h>

#define EXACTLY (2 << 6) /* the selector of an MTU, a rate or a lifetime */

struct entry {
	uint16_t type; /* ACM_EP_INFO_NAME, ACM_EP_INFO_ADDRESS_IP or ACM_EP_INFO_ADDRESS_IP6 */
	uint8_t address[ACM_MAX_ADDRESS];
	union ibv_gid gid;
	uint16_t lid;
	uint8_t sl, mtu, rate;
};

/*
 * What there is for an open port. Nothing of it changes before the port is closed, so that it needs no lock: when the
 * LID, a GID, the rate or the MTU changes, the service closes the port and opens it again.
 */
struct port {
	union ibv_gid gid;
	uint16_t lid;
	uint8_t lifetime;
	struct entry *table;
	size_t entries;
};

struct endpoint {
	const struct acm_endpoint *core;
	const struct port *port;
	uint64_t counters[ACM_MAX_COUNTER];
	int users; /* itself while it is open, and each MAD that is under way */
};

/* A question to the SA that is under way. */
struct question {
	struct endpoint *ep;
	int (*respond)(uint64_t id, struct acm_msg *msg);
	uint64_t id;
	struct acm_msg msg;
};

/* The endpoint's own counters; those of the whole service that the service does not count itself go there, too. */
static void count(struct endpoint *ep, int counter)
{
	__atomic_fetch_add(&ep->counters[counter], 1, __ATOMIC_RELAXED);
	if (counter == ACM_CNTR_ROUTE_QUERY || counter == ACM_CNTR_ROUTE_CACHE)
		acm_increment_counter(counter);
}

static void release(struct endpoint *ep)
{
	if (__atomic_sub_fetch(&ep->users, 1, __ATOMIC_ACQ_REL) == 0)
		free(ep);
}

/* -- The table -- */

/* The value of an option of ours. All providers share the file; lines for others are none of our business. */
static int option(const char *name, char *value, size_t size)
{
	FILE *file = fopen(acm_get_opts_file(), "r");
	char line[512], word[64], rest[384];
	int found = 0;

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%63s %383s", word, rest) == 2 && !strcasecmp(word, name))
			found = snprintf(value, size, "%s", rest) < (int)size;
	}
	if (file)
		fclose(file);
	return found;
}

static int parse(const char *line, const struct ibv_port_attr *attr, struct entry *entry)
{
	int lid, sl = 0, mtu = 0, rate = 0;
	char address[64], gid[64];

	memset(entry, 0, sizeof(*entry));
	if (sscanf(line, "%63s %63s %i %i %i %i", address, gid, &lid, &sl, &mtu, &rate) < 3 || address[0] == '#' ||
	    inet_pton(AF_INET6, gid, entry->gid.raw) != 1 || lid < 1 || lid > 0xbfff || sl < 0 || sl > 15)
		return -1;
	if (inet_pton(AF_INET, address, entry->address) == 1)
		entry->type = ACM_EP_INFO_ADDRESS_IP;
	else if (inet_pton(AF_INET6, address, entry->address) == 1)
		entry->type = ACM_EP_INFO_ADDRESS_IP6;
	else {
		entry->type = ACM_EP_INFO_NAME;
		memcpy(entry->address, address, strlen(address));
	}
	entry->lid = lid;
	entry->sl = sl;
	entry->mtu = EXACTLY | (mtu ? acm_convert_mtu(mtu) : attr->active_mtu);
	entry->rate = EXACTLY | (rate ? acm_convert_rate(rate) : acm_get_rate(attr->active_width, attr->active_speed));
	return 0;
}

static void read_table(struct port *port, const struct ibv_port_attr *attr)
{
	char name[384], line[512];
	struct entry entry, *more;
	FILE *file;

	if (!option("static_table", name, sizeof(name)))
		return acm_write(0, "static: there is no line static_table in %s\n", acm_get_opts_file());
	file = fopen(name, "r");
	if (!file)
		return acm_write(0, "static: %s cannot be read\n", name);
	while (fgets(line, sizeof(line), file)) {
		if (parse(line, attr, &entry))
			continue;
		more = (struct entry *)realloc(port->table, (port->entries + 1) * sizeof(entry));
		if (!more)
			break;
		port->table = more;
		port->table[port->entries++] = entry;
	}
	fclose(file);
	acm_write(1, "static: %zu entries from %s\n", port->entries, name);
}

static const struct entry *by_address(const struct port *port, const struct acm_ep_addr_data *wanted)
{
	const char *name = (const char *)wanted->info.name;
	size_t i;

	for (i = 0; i < port->entries; i++) {
		const struct entry *entry = &port->table[i];

		if (entry->type != wanted->type)
			continue;
		/* Rule: names compare without case, and 64 bytes have no 0 at their end. */
		if (entry->type == ACM_EP_INFO_NAME ? !strncasecmp((const char *)entry->address, name, ACM_MAX_ADDRESS) :
						      !memcmp(entry->address, wanted->info.addr,
							      entry->type == ACM_EP_INFO_ADDRESS_IP ? 4 : 16))
			return entry;
	}
	return NULL;
}

static const struct entry *by_path(const struct port *port, const struct ibv_path_record *wanted)
{
	size_t i;

	for (i = 0; i < port->entries; i++) {
		const struct entry *entry = &port->table[i];

		if (wanted->dlid ? entry->lid == be16toh(wanted->dlid) :
				   !memcmp(&entry->gid, &wanted->dgid, sizeof(entry->gid)))
			return entry;
	}
	return NULL;
}

/* -- Answers -- */

/*
 * Rule: each question is answered once, from whatever thread, by the function that belongs to it. In the header stay the
 * version, the operation and the tid of the question; length and tid are in host order here. A failure is a header alone.
 */
static void fail(struct endpoint *ep, int (*respond)(uint64_t, struct acm_msg *), uint64_t id, struct acm_msg *msg,
		 uint8_t status)
{
	count(ep, status == ACM_STATUS_ENODATA ? ACM_CNTR_NODATA : ACM_CNTR_ERROR);
	msg->hdr.opcode |= ACM_OP_ACK;
	msg->hdr.status = status;
	msg->hdr.length = ACM_MSG_HDR_LENGTH;
	memset(msg->hdr.data, 0, sizeof(msg->hdr.data));
	respond(id, msg);
}

/* The message may be that of the question: the service has its own copy of what it needs. */
static void succeed(int (*respond)(uint64_t, struct acm_msg *), uint64_t id, struct acm_msg *msg)
{
	msg->hdr.opcode |= ACM_OP_ACK;
	msg->hdr.status = ACM_STATUS_SUCCESS;
	memset(msg->hdr.data, 0, sizeof(msg->hdr.data));
	respond(id, msg);
}

static void answer_from_table(struct endpoint *ep, uint64_t id, struct acm_msg *msg, const struct entry *entry)
{
	const struct port *port = ep->port;
	struct acm_ep_addr_data source;
	struct ibv_path_record *path = &msg->resolve_data[0].info.path;
	int is_path = msg->resolve_data[0].type == ACM_EP_INFO_PATH;
	int entries = 1;

	/*
	 * Rule: where the client named no source, the service has chosen one (src_out), and put it at src_index, which
	 * may be behind the client's entries. It is the second entry of the answer.
	 */
	if (!is_path && msg->hdr.src_out) {
		source = msg->resolve_data[msg->hdr.src_index];
		msg->resolve_data[1] = source;
		entries = 2;
	}
	memset(&msg->resolve_data[0], 0, sizeof(msg->resolve_data[0]));
	msg->resolve_data[0].type = ACM_EP_INFO_PATH;
	msg->resolve_data[0].flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
	path->dgid = entry->gid;
	path->sgid = port->gid;
	path->dlid = htobe16(entry->lid);
	path->slid = htobe16(port->lid);
	/* Beyond a router the hop limit has to let packets through. */
	path->flowlabel_hoplimit = htobe32(entry->gid.global.subnet_prefix == port->gid.global.subnet_prefix ? 0 : 64);
	path->reversible_numpath = IBV_PATH_RECORD_REVERSIBLE | 1;
	path->pkey = htobe16(ep->core->pkey);
	path->qosclass_sl = htobe16(entry->sl);
	path->mtu = entry->mtu;
	path->rate = entry->rate;
	path->packetlifetime = EXACTLY | port->lifetime;
	msg->hdr.length = ACM_MSG_HDR_LENGTH + entries * ACM_MSG_EP_LENGTH;
	succeed(acm_resolve_response, id, msg);
}

/* -- The SA -- */

/* The service calls this once for each MAD that was sent, on a thread of its own: the endpoint may be closed by then. */
static void from_sa(struct acm_sa_mad *mad)
{
	struct question *question = (struct question *)mad->context;
	struct acm_msg *msg = &question->msg;
	uint16_t status = be16toh(mad->sa_mad.mad_hdr.status);

	if (mad->umad.status) { /* an errno: nobody has answered */
		fail(question->ep, question->respond, question->id, msg, ACM_STATUS_ETIMEDOUT);
	} else if (status) { /* the SA's statuses stand in the high byte, and the first of them are ours */
		status >>= 8;
		fail(question->ep, question->respond, question->id, msg,
		     status >= ACM_STATUS_ENOMEM && status <= ACM_STATUS_ENODATA ? status : ACM_STATUS_EINVAL);
	} else {
		memcpy(&msg->resolve_data[0].info.path, mad->sa_mad.data, sizeof(struct ibv_path_record));
		succeed(question->respond, question->id, msg);
	}
	release(question->ep);
	free(question);
	/* Rule: each MAD is freed once, and not while it is under way. The handler is the place. */
	acm_free_sa_mad(mad);
}

/* Asks for the path in the message's first entry. What the SA says becomes the answer. */
static void ask_sa(struct endpoint *ep, int (*respond)(uint64_t, struct acm_msg *), uint64_t id, struct acm_msg *msg)
{
	static uint32_t last_tid;
	struct question *question = (struct question *)malloc(sizeof(*question));
	struct acm_sa_mad *mad = question ? acm_alloc_sa_mad(ep->core, question, from_sa) : NULL;
	struct ibv_path_record *path = &msg->resolve_data[0].info.path;
	struct umad_sa_packet *packet;

	if (!mad) {
		free(question);
		fail(ep, respond, id, msg, ACM_STATUS_ENOMEM);
		return;
	}
	/* Rule: the message belongs to the service, and is gone when the call comes back: it has to be copied. */
	question->ep = ep;
	question->respond = respond;
	question->id = id;
	question->msg = *msg;

	packet = &mad->sa_mad;
	packet->mad_hdr.base_version = 1;
	packet->mad_hdr.mgmt_class = UMAD_CLASS_SUBN_ADM;
	packet->mad_hdr.class_version = UMAD_SA_CLASS_VERSION;
	packet->mad_hdr.method = UMAD_METHOD_GET;
	/* Rule: the upper half of a tid is the kernel's, and two MADs that are under way have different ones. */
	packet->mad_hdr.tid = htobe64(__atomic_add_fetch(&last_tid, 1, __ATOMIC_RELAXED));
	packet->mad_hdr.attr_id = htobe16(UMAD_SA_ATTR_PATH_REC);
	packet->comp_mask = acm_path_comp_mask(path);
	memcpy(packet->data, path, sizeof(*path));

	count(ep, ACM_CNTR_ROUTE_QUERY);
	__atomic_fetch_add(&ep->users, 1, __ATOMIC_RELAXED);
	/* Where it cannot be sent the handler is not called. Where it can, it may have been called already. */
	if (acm_send_sa_mad(mad)) {
		acm_free_sa_mad(mad);
		free(question);
		fail(ep, respond, id, msg, ACM_STATUS_ETIMEDOUT);
		release(ep);
	}
}

/* -- What the service calls -- */

/*
 * Rule: nothing here waits, since other clients do meanwhile. What is returned is 0, unless the question could not be
 * taken at all: a failure that was answered is an answer.
 */
static int static_resolve(void *context, struct acm_msg *msg, uint64_t id)
{
	struct endpoint *ep = (struct endpoint *)context;
	struct acm_ep_addr_data *first = &msg->resolve_data[0];
	/* Rule: a path is a question by LID or GID; else dst_index says where the destination is. */
	int is_path = first->type == ACM_EP_INFO_PATH;
	const struct acm_ep_addr_data *wanted = is_path ? first : &msg->resolve_data[msg->hdr.dst_index];
	const struct entry *entry = is_path ? by_path(ep->port, &first->info.path) : by_address(ep->port, wanted);

	count(ep, ACM_CNTR_RESOLVE);
	if (entry) {
		count(ep, ACM_CNTR_ROUTE_CACHE);
		answer_from_table(ep, id, msg, entry);
	} else if (is_path && !(wanted->flags & ACM_FLAGS_NODELAY)) {
		struct ibv_path_record *path = &first->info.path;

		/* An answer to a path is one entry, whatever the client has behind it. */
		first->flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
		msg->hdr.length = ACM_MSG_HDR_LENGTH + ACM_MSG_EP_LENGTH;
		path->sgid = ep->port->gid;
		path->slid = htobe16(ep->port->lid);
		path->pkey = htobe16(ep->core->pkey);
		ask_sa(ep, acm_resolve_response, id, msg);
	} else { /* Rule: with ACM_FLAGS_NODELAY what is not at hand is ACM_STATUS_ENODATA, at once. */
		fail(ep, acm_resolve_response, id, msg, ACM_STATUS_ENODATA);
	}
	return 0;
}

/* The client wants the SA's own word. */
static int static_query(void *context, struct acm_msg *msg, uint64_t id)
{
	struct endpoint *ep = (struct endpoint *)context;
	struct ibv_path_record *path = &msg->resolve_data[0].info.path;

	count(ep, ACM_CNTR_RESOLVE);
	if (ib_any_gid(&path->sgid) && !path->slid)
		path->sgid = ep->port->gid;
	ask_sa(ep, acm_query_response, id, msg);
	return 0;
}

static void static_query_perf(void *context, uint64_t *values, uint8_t *count)
{
	struct endpoint *ep = (struct endpoint *)context;
	int i;

	for (i = 0; i < ACM_MAX_COUNTER; i++)
		values[i] = htobe64(__atomic_load_n(&ep->counters[i], __ATOMIC_RELAXED));
	*count = ACM_MAX_COUNTER;
}

/*
 * A context may be anything but NULL: rdma-core's service takes that for nothing to close. Rule: the structures of the
 * service (the port here) are good from open to close, and no longer.
 */
static int static_open_device(const struct acm_device *device, void **context)
{
	*context = (void *)device;
	return 0;
}

static void static_close_device(void *context)
{
	(void)context;
}

static int static_open_port(const struct acm_port *core, void *device, void **context)
{
	struct port *port = (struct port *)calloc(1, sizeof(*port));
	struct ibv_port_attr attr;

	(void)device;
	if (!port || ibv_query_port(core->dev->verbs, core->port_num, &attr) ||
	    acm_get_gid((struct acm_port *)core, 0, &port->gid)) {
		free(port);
		return -1;
	}
	port->lid = attr.lid;
	port->lifetime = attr.subnet_timeout;
	read_table(port, &attr);
	*context = port;
	return 0;
}

/* Rule: endpoints are closed before their port, and ports before their device. */
static void static_close_port(void *context)
{
	struct port *port = (struct port *)context;

	free(port->table);
	free(port);
}

static int static_open_endpoint(const struct acm_endpoint *core, void *port, void **context)
{
	struct endpoint *ep = (struct endpoint *)calloc(1, sizeof(*ep));

	if (!ep)
		return -1;
	ep->core = core;
	ep->port = (const struct port *)port;
	ep->users = 1;
	*context = ep;
	return 0;
}

/* MADs that are under way use the endpoint still, but for its port and what it has of the service. */
static void static_close_endpoint(void *context)
{
	release((struct endpoint *)context);
}

/* All addresses of an endpoint are alike to us: where the questions come from does not matter. */
static int static_add_address(const struct acm_address *address, void *endpoint, void **context)
{
	acm_write(1, "static: %s\n", address->id_string);
	*context = endpoint;
	return 0;
}

static void static_remove_address(void *context)
{
	(void)context;
}

/* There is nothing that a new subnet manager would have to be told. */
static int static_handle_event(void *port, enum ibv_event_type type)
{
	(void)port;
	(void)type;
	return 0;
}

static struct acm_provider provider = {
	.size = sizeof(struct acm_provider),
	/* Rule: the number that this was written for, not ACM_PROV_VERSION, which will be another one some day. */
	.version = 1,
	.name = "static",
	.open_device = static_open_device,
	.close_device = static_close_device,
	.open_port = static_open_port,
	.close_port = static_close_port,
	.open_endpoint = static_open_endpoint,
	.close_endpoint = static_close_endpoint,
	.add_address = static_add_address,
	.remove_address = static_remove_address,
	.resolve = static_resolve,
	.query = static_query,
	.handle_event = static_handle_event,
	.query_perf = static_query_perf,
};

int provider_query(struct acm_provider **info, uint32_t *version)
{
	*info = &provider;
	*version = provider.version;
	return 0;
}
