/* SPDX-License-Identifier: GPL-2.0-only OR Linux-OpenIB */
/*
 * What a provider of ibacm and the service have of each other: ibacm_prov(7). The names and layouts are those of
 * rdma-core's header, so that a provider that was built with one works in both services.
 */
#ifndef ACM_PROV_H
#define ACM_PROV_H

#include <stddef.h>

#include <infiniband/acm.h>
#include <infiniband/umad.h>
#include <infiniband/umad_sa.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of what is described here. A provider says the number itself, which is its own for ever. */
#define ACM_PROV_VERSION 1

/*
 * The structures of the service. They stay where they are from the call that opens them until the one that closes them
 * comes back, and a provider only reads them.
 */
struct acm_device {
	struct ibv_context *verbs;
	__be64 dev_guid; /* node GUID */
};

struct acm_port {
	struct acm_device *dev;
	uint8_t port_num; /* from 1 */
};

struct acm_endpoint {
	struct acm_port *port;
	uint16_t pkey; /* as in the port's table, host order */
};

struct acm_address {
	struct acm_endpoint *endpoint;
	union acm_ep_info info;
	char *id_string; /* as text */
	uint16_t type; /* ACM_EP_INFO_* */
};

/* What a provider is. Contexts are its own; each call has that of what it is about. */
struct acm_provider {
	size_t size; /* sizeof(struct acm_provider) */
	uint32_t version;
	const char *name; /* as in the option "provider" */
	/* These return 0, or anything else if it is not to be open. */
	int (*open_device)(const struct acm_device *device, void **dev_context);
	void (*close_device)(void *dev_context);
	int (*open_port)(const struct acm_port *port, void *dev_context, void **port_context);
	void (*close_port)(void *port_context);
	int (*open_endpoint)(const struct acm_endpoint *endpoint, void *port_context, void **ep_context);
	void (*close_endpoint)(void *ep_context);
	int (*add_address)(const struct acm_address *addr, void *ep_context, void **addr_context);
	void (*remove_address)(void *addr_context);
	/* A client's question. 0: it was answered, or will be, by acm_resolve_response or acm_query_response. */
	int (*resolve)(void *addr_context, struct acm_msg *msg, uint64_t id);
	int (*query)(void *addr_context, struct acm_msg *msg, uint64_t id);
	/* IBV_EVENT_CLIENT_REREGISTER: the subnet manager has forgotten what ports have registered. */
	int (*handle_event)(void *port_context, enum ibv_event_type type);
	/* An endpoint's counters, in network order and in the order of ACM_CNTR_*, and how many. */
	void (*query_perf)(void *ep_context, uint64_t *values, uint8_t *cnt);
};

/* The one function that a provider has to export: 0, what it is, and the version that it was written for. */
int provider_query(struct acm_provider **info, uint32_t *version);

/* -- What the service exports. All of it may be called from any thread. -- */

/* Writes to the service's log, if that has this level (0 to 2). The line ends with "\n". */
extern void acm_write(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define acm_log(level, format, ...) acm_write(level, "%s: " format, __func__, ##__VA_ARGS__)

/* An address as text, if the log has this level; else name is left as it is. */
extern void acm_format_name(int level, char *name, size_t name_size, uint8_t addr_type, const uint8_t *addr,
			    size_t addr_size);

/* Whether a GID is zero. */
extern int ib_any_gid(union ibv_gid *gid);

/* The GIDs of a port that is open: the place of one (their number, if it has no place), and the one of a place (0, or -1). */
extern uint8_t acm_gid_index(struct acm_port *port, union ibv_gid *gid);
extern int acm_get_gid(struct acm_port *port, int index, union ibv_gid *gid);

/* The component mask of all fields of a path that are not zero. */
extern __be64 acm_path_comp_mask(struct ibv_path_record *path);

/* Answers a question. The message is copied. */
extern int acm_resolve_response(uint64_t id, struct acm_msg *msg);
extern int acm_query_response(uint64_t id, struct acm_msg *msg);

/* The codes of a link's rate, of an MTU in bytes, and of a rate in Gb/s. */
extern enum ibv_rate acm_get_rate(uint8_t width, uint8_t speed);
extern enum ibv_mtu acm_convert_mtu(int mtu);
extern enum ibv_rate acm_convert_rate(int rate);

/*
 * A question to the subnet administrator. sa_mad is the provider's to fill, the service fills umad. The answer comes in
 * the same structure: umad.status is 0 or an errno.
 */
struct acm_sa_mad {
	void *context;
	struct ib_user_mad umad;
	struct umad_sa_packet sa_mad; /* directly behind umad, since both are sent as one */
};

/* Makes one, zeroed, for the SA of the endpoint's port; NULL if that fails. */
extern struct acm_sa_mad *acm_alloc_sa_mad(const struct acm_endpoint *endpoint, void *context,
					   void (*handler)(struct acm_sa_mad *));
/* Frees one that is not under way. */
extern void acm_free_sa_mad(struct acm_sa_mad *mad);
/* Sends it. 0: the handler is called, once. */
extern int acm_send_sa_mad(struct acm_sa_mad *mad);

/* The name of the service's options file, for options of one's own. */
extern const char *acm_get_opts_file(void);

/* Counts for the whole service: one of ACM_CNTR_*. */
extern void acm_increment_counter(int type);

#ifdef __cplusplus
}
#endif

#endif /* ACM_PROV_H */
