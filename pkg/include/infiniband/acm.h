/* SPDX-License-Identifier: GPL-2.0-only OR Linux-OpenIB */
/*
 * Messages between ibacm and its clients, and between ibacm and its providers. The names and layouts are those of
 * rdma-core's header, so that a program takes either.
 */
#ifndef ACM_H
#define ACM_H

#include <stdint.h>

#include <infiniband/sa.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version in every header. */
#define ACM_VERSION 1

/* What is asked: the low bits of the opcode. An answer has ACM_OP_ACK, too. */
#define ACM_OP_MASK 0x0F
#define ACM_OP_RESOLVE 0x01
#define ACM_OP_PERF_QUERY 0x02
#define ACM_OP_EP_QUERY 0x03
#define ACM_OP_ACK 0x80

/* How it ended. */
#define ACM_STATUS_SUCCESS 0
#define ACM_STATUS_ENOMEM 1
#define ACM_STATUS_EINVAL 2
#define ACM_STATUS_ENODATA 3 /* not known */
#define ACM_STATUS_ENOTCONN 5
#define ACM_STATUS_ETIMEDOUT 6 /* nobody has answered */
#define ACM_STATUS_ESRCADDR 7 /* the source is no address of this host */
#define ACM_STATUS_ESRCTYPE 8
#define ACM_STATUS_EDESTADDR 9
#define ACM_STATUS_EDESTTYPE 10

/* Flags of an address beside ACM_EP_FLAG_*: ask the subnet administrator; say what is known already, and no more. */
#define ACM_FLAGS_QUERY_SA (1 << 31)
#define ACM_FLAGS_NODELAY (1 << 30)

#define ACM_MSG_HDR_LENGTH 16 /* bytes of struct acm_hdr */
#define ACM_MSG_EP_LENGTH 72 /* bytes of struct acm_ep_addr_data */
#define ACM_MAX_ADDRESS 64 /* bytes of an address or a name, and its zeros */
#define ACM_MAX_PROV_NAME 64 /* likewise of a provider's name */
#define ACM_MSG_DATA_LENGTH (ACM_MSG_EP_LENGTH * 8) /* eight addresses or paths */

/* The three bytes of a header that are used differently by each operation. */
#define src_out data[0]
#define src_index data[1]
#define dst_index data[2]

/* length is all bytes of the message. Both it and tid are in host order with ACM_OP_RESOLVE, else in network order. */
struct acm_hdr {
	uint8_t version;
	uint8_t opcode;
	uint8_t status;
	uint8_t data[3];
	uint16_t length;
	uint64_t tid; /* an answer has that of its question */
};

/* Types of addresses. */
#define ACM_EP_INFO_NAME 0x0001
#define ACM_EP_INFO_ADDRESS_IP 0x0002
#define ACM_EP_INFO_ADDRESS_IP6 0x0003
#define ACM_EP_INFO_PATH 0x0010

/* An address, padded with zeros, or a path. In network order. */
union acm_ep_info {
	uint8_t addr[ACM_MAX_ADDRESS];
	uint8_t name[ACM_MAX_ADDRESS];
	struct ibv_path_record path;
};

/* Which side an address is. */
#define ACM_EP_FLAG_SOURCE (1 << 0)
#define ACM_EP_FLAG_DEST (1 << 1)

/* An address of a question, or a path of an answer. flags and type are in host order. */
struct acm_ep_addr_data {
	uint32_t flags;
	uint16_t type;
	uint16_t reserved;
	union acm_ep_info info;
};

struct acm_resolve_msg {
	struct acm_hdr hdr;
	struct acm_ep_addr_data data[];
};

/* Counters, in the order in which they are told. */
enum {
	ACM_CNTR_ERROR, /* questions that failed for another reason than ACM_STATUS_ENODATA */
	ACM_CNTR_RESOLVE, /* questions for a path */
	ACM_CNTR_NODATA, /* questions that ended with ACM_STATUS_ENODATA */
	ACM_CNTR_ADDR_QUERY, /* addresses that were asked for on the fabric */
	ACM_CNTR_ADDR_CACHE, /* addresses that were known, without a path */
	ACM_CNTR_ROUTE_QUERY, /* paths that the subnet administrator was asked for */
	ACM_CNTR_ROUTE_CACHE, /* paths that were known */
	ACM_MAX_COUNTER
};

/* In network order. */
struct acm_perf_msg {
	struct acm_hdr hdr;
	uint64_t data[];
};

/* An endpoint and its addresses as text. In network order. */
struct acm_ep_config_data {
	uint64_t dev_guid;
	uint8_t port_num;
	uint8_t phys_port_cnt;
	uint8_t rsvd[2];
	uint16_t pkey;
	uint16_t addr_cnt;
	uint8_t prov_name[ACM_MAX_PROV_NAME];
	union acm_ep_info addrs[];
};

struct acm_ep_query_msg {
	struct acm_hdr hdr;
	struct acm_ep_config_data data[];
};

/* Any message. */
struct acm_msg {
	struct acm_hdr hdr;
	union {
		uint8_t data[ACM_MSG_DATA_LENGTH];
		struct acm_ep_addr_data resolve_data[8];
		uint64_t perf_data[72];
		struct acm_ep_config_data ep_data;
	};
};

#ifdef __cplusplus
}
#endif

#endif /* ACM_H */
