/* SPDX-License-Identifier: GPL-2.0-only OR Linux-OpenIB */
/*
 * Paths by name, by IP address or by a part of their record, from the InfiniBand communication management assistant.
 *
 * Functions that return int: 0 is success; -1 is a failure of the transport or of the arguments, told by errno
 * (ETIMEDOUT: the time limit has passed; ENOENT, ECONNREFUSED: no service; EPROTO: not a valid reply; EINVAL: an
 * argument; ENODEV: the path starts at no device that this process can open); a positive value is the status with which
 * the service has answered, one of enum ib_acm_status or a number that is newer.
 *
 * Every function can be called by any thread, and none is a cancellation point: pthread_cancel(3) takes effect when the
 * call has returned. The calls that wait can be used on both sides of a fork. fork(2) itself waits until no thread asks
 * libibverbs for devices here, for a second at most. In a child that was forked while another part of the program was in
 * libibverbs, the calls that need a device can hang.
 *
 * Texts are bytes, as the service has them; they need not be UTF-8.
 */
#ifndef INFINIBAND_IB_ACM_H
#define INFINIBAND_IB_ACM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers of rdma-core's ACM_STATUS_*. */
enum ib_acm_status {
	IB_ACM_STATUS_SUCCESS = 0,
	IB_ACM_STATUS_ENOMEM = 1,
	IB_ACM_STATUS_EINVAL = 2,
	IB_ACM_STATUS_ENODATA = 3, /* no such path, or not cached where only the cache was asked */
	IB_ACM_STATUS_ENOTCONN = 5,
	IB_ACM_STATUS_ETIMEDOUT = 6, /* the destination does not answer, or the subnet administrator does not */
	IB_ACM_STATUS_ESRCADDR = 7,
	IB_ACM_STATUS_ESRCTYPE = 8,
	IB_ACM_STATUS_EDESTADDR = 9, /* none, or one that no route over an IPoIB interface leads to */
	IB_ACM_STATUS_EDESTTYPE = 10 /* a kind that cannot be found so, as a name without a source for some services */
};

struct ib_acm_dev_addr {
	uint64_t guid; /* of the device, network order, as ibv_get_device_guid() returns it */
	uint16_t pkey_index;
	uint8_t port_num;
	uint8_t reserved[5];
};

struct ib_acm_resolve_data {
	uint32_t reserved1;
	uint8_t init_depth; /* the local device's max_qp_init_rd_atom, at most 255 */
	uint8_t resp_resources; /* the local device's max_qp_rd_atom, at most 255 */
	uint8_t packet_lifetime; /* 4.096 us * 2^n */
	uint8_t mtu; /* enum ibv_mtu */
	uint8_t reserved2[8];
};

/* A path record in network order; the bytes of struct ibv_path_record of infiniband/sa.h. */
struct ib_path_record {
	uint64_t service_id;
	union ibv_gid dgid;
	union ibv_gid sgid;
	uint16_t dlid;
	uint16_t slid;
	uint32_t flowlabel_hoplimit; /* 4 bits 0, flow label 20 bits, hop limit 8 bits */
	uint8_t tclass;
	uint8_t reversible_numpath; /* reversible 1 bit, number of paths 7 bits */
	uint16_t pkey;
	uint16_t qosclass_sl; /* QoS class 12 bits, SL 4 bits */
	uint8_t mtu; /* selector 2 bits, value 6 bits; so the two that follow */
	uint8_t rate;
	uint8_t packetlifetime;
	uint8_t preference;
	uint8_t reserved[6];
};

/* The path to a name. src can be NULL: the service chooses. Each of the three results can be NULL. */
int ib_acm_resolve_name(char *src, char *dest, struct ib_acm_dev_addr *dev_addr, struct ibv_ah_attr *ah,
			struct ib_acm_resolve_data *data);

/* The path to an AF_INET or AF_INET6 address, likewise. */
int ib_acm_resolve_ip(struct sockaddr *src, struct sockaddr *dest, struct ib_acm_dev_addr *dev_addr,
		      struct ibv_ah_attr *ah, struct ib_acm_resolve_data *data);

/* Completes a record with at least a destination LID or GID. */
int ib_acm_resolve_path(struct ib_path_record *path);

/* The same, always from the subnet administrator. */
int ib_acm_query_path(struct ib_path_record *path);

/*
 * The path to a name or an IP address, given as text, as a record: for what needs no device of this process.
 * IB_ACM_CACHED: only if the service knows it already; otherwise the status is 3 (no data), and it begins to look for
 * it. source receives the address that the service has chosen where src is NULL, else "". path and source can be NULL.
 */
#define IB_ACM_CACHED 1

struct ib_acm_address {
	char text[72]; /* always ends with a zero */
};

int ib_acm_resolve(const char *src, const char *dest, int flags, struct ib_path_record *path,
		   struct ib_acm_address *source);

/* Makes of any record what the first two functions give; asks nobody but the local device. */
int ib_acm_convert_from_path(const struct ib_path_record *path, struct ib_acm_dev_addr *dev_addr,
			     struct ibv_ah_attr *ah, struct ib_acm_resolve_data *data);

/* Makes a record of what the first two functions give; asks nobody but the local device. */
int ib_acm_convert_to_path(struct ib_acm_dev_addr *dev_addr, struct ibv_ah_attr *ah, struct ib_acm_resolve_data *data,
			   struct ib_path_record *path);

/*
 * What the last call of this thread that asks the service has returned: of ib_acm_resolve*, ib_acm_query* and
 * ib_acm_connect.
 */
int ib_acm_last_status(void);

/* The words for a status. */
const char *ib_acm_status_str(int status);

/*
 * Connects now rather than at the next call, unless there is a connection already: -1 with the system's own errno tells
 * whether there is a service.
 */
int ib_acm_connect(void);

/*
 * Where later calls of this process find the service: a socket file (with a '/'), host, host:port or [address]:port;
 * NULL: where the service of this host says, which is the default. A host's name is looked up here, within the time
 * limit of a call (EHOSTUNREACH: it has no address). If it has several addresses, the first that accepts is taken.
 */
int ib_acm_set_server(const char *server);

/* The time limit of each later call of this process, in milliseconds from 1; 20000 where none is set. */
int ib_acm_set_timeout(int milliseconds);

/* Called for each destination, in the order in which answers come. result: 0, a status, or a negative errno. */
typedef void (*ib_acm_result_fn)(void *context, size_t index, int result, const struct ib_path_record *path);

/*
 * The paths to many names or IP addresses (as text), with one time limit for all. Returns how many have no path, or -1.
 * path is NULL where result is not 0, and is gone when the function returns. function may fork: in the child, result is
 * -ECANCELED for what the parent has asked already.
 */
int ib_acm_resolve_many(const char *src, const char *const *dests, size_t count, ib_acm_result_fn function,
			void *context);

/* What the service counts. */
struct ib_acm_counters {
	uint64_t error; /* failures other than "no data" */
	uint64_t resolve; /* requests to resolve */
	uint64_t nodata; /* answers of "no data" */
	uint64_t addr_query; /* multicast requests for addresses */
	uint64_t addr_cache; /* addresses that were known, without the route */
	uint64_t route_query; /* requests to the subnet administrator */
	uint64_t route_cache; /* requests answered from the cache */
	uint64_t reserved;
};

/*
 * Counters: of the whole service (0 and NULL), of an endpoint by its number from 1 (and NULL), or of the endpoint that
 * has an address (0 and the address as text).
 */
int ib_acm_query_counters(int endpoint, const char *address, struct ib_acm_counters *counters);

/* An endpoint of the service: a port, a partition, and the addresses that are served there. */
struct ib_acm_endpoint {
	uint64_t guid; /* of the device, network order */
	uint16_t pkey; /* host order */
	uint8_t port_num;
	uint8_t port_cnt; /* ports that the device has */
	uint32_t address_cnt; /* addresses that the endpoint has, even if there was room for less */
	struct ib_acm_address provider;
	uint8_t reserved[8];
};

/*
 * The endpoint with this number, from 1; status 2 (invalid request) is the end of the list. With a port other than 0,
 * only the endpoints of ports with this number count. Up to count addresses are written; names as they are, IP addresses
 * with the length of their prefix. addresses can be NULL if count is 0.
 */
int ib_acm_query_endpoint(int number, int port, struct ib_acm_endpoint *endpoint, struct ib_acm_address *addresses,
			  size_t count);

/*
 * Without waiting. Submit, poll ib_acm_session_fd() for ib_acm_session_events() during ib_acm_session_timeout(), call
 * ib_acm_session_ready(), take results while there are any; ask for all three again before the next poll. A session is
 * used by one thread at a time. In a forked process nothing that the parent has submitted is pending.
 */
struct ib_acm_session;

struct ib_acm_result {
	uint64_t ticket;
	int32_t result; /* 0, a status, or a negative errno */
	uint32_t flags; /* IBV_PATH_FLAG_* of infiniband/sa.h */
	struct ib_path_record path; /* zero where result is not 0 */
};

struct ib_acm_session *ib_acm_session_open(const char *server);
void ib_acm_session_close(struct ib_acm_session *session);
/* For a name or an IP address as text; flags as for ib_acm_resolve(). */
int ib_acm_submit(struct ib_acm_session *session, const char *src, const char *dest, int flags, int milliseconds,
		  uint64_t *ticket);
int ib_acm_submit_name(struct ib_acm_session *session, const char *src, const char *dest, int milliseconds,
		       uint64_t *ticket);
int ib_acm_submit_ip(struct ib_acm_session *session, const struct sockaddr *src, const struct sockaddr *dest,
		     int milliseconds, uint64_t *ticket);
int ib_acm_submit_path(struct ib_acm_session *session, const struct ib_path_record *path, int query_sa,
		       int milliseconds, uint64_t *ticket);
int ib_acm_session_fd(const struct ib_acm_session *session); /* -1: none at the moment */
short ib_acm_session_events(const struct ib_acm_session *session); /* for poll(2) */
int ib_acm_session_timeout(const struct ib_acm_session *session); /* for poll(2); -1: nothing is pending */
int ib_acm_session_ready(struct ib_acm_session *session); /* how many requests are still pending, or -1 */
int ib_acm_session_result(struct ib_acm_session *session, struct ib_acm_result *result); /* 1, or 0: none, or -1 */

#ifdef __cplusplus
}
#endif

#endif
