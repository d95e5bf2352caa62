/*
 * The messages between the stand-in library (in the programs under test) and the switch process.
 *
 * One message is one packet of a SOCK_SEQPACKET unix socket: this fixed part, then `len` bytes of
 * payload. src/proto.rs is the other side of this file: change both. Numbers are in host order,
 * GUIDs and GIDs as they stand on the wire.
 */
#ifndef FABRIC_PROTO_H
#define FABRIC_PROTO_H

#include <stdint.h>

#define FAB_VERSION 1
/* 4096 bytes of datagram, its GRH, and room for the fixed part. */
#define FAB_MAX_PAYLOAD 4352

struct fab_msg {
	uint32_t op;
	int32_t err;		/* of a reply: 0 or an errno */
	uint32_t obj;		/* QP number, CQ handle or MAD agent */
	uint32_t port;
	uint32_t index;
	uint32_t flags;
	uint32_t v[10];
	uint64_t id;
	uint8_t gid[16];
	uint32_t len;
	uint32_t pad;
};

/* What a connection is for; the flags of its FAB_HELLO, which is the first message and is answered. */
enum {
	FAB_CONN_CONTROL = 1,	/* requests of one device context */
	FAB_CONN_CQ = 2,	/* completions of one CQ: id = context, obj = CQ handle */
	FAB_CONN_ASYNC = 3,	/* asynchronous events of one context: id = context */
	FAB_CONN_UMAD = 4,	/* MADs of one open port: port, payload = host NUL device */
};

enum {
	FAB_HELLO = 1,		/* index = FAB_VERSION, v[0] = pid, payload = host name; reply: id = the connection */
	FAB_LIST = 2,		/* reply payload: struct fab_device[] */
	FAB_OPEN = 3,		/* payload = device name; reply: id = context; flags 1 = only to ask questions */
	FAB_PORT = 5,		/* port; reply payload: struct fab_port */
	FAB_GID = 6,		/* port, index; reply: gid */
	FAB_PKEY = 7,		/* port, index; reply: v[0] */
	FAB_CREATE_CQ = 10,	/* v[0] = entries; reply: obj */
	FAB_DESTROY_CQ = 11,
	FAB_CREATE_QP = 12,	/* v = send CQ, receive CQ, send depth, receive depth; reply: obj */
	FAB_MODIFY_QP = 13,	/* flags = attribute mask, v = state, pkey index, port, qkey */
	FAB_QUERY_QP = 14,	/* reply: v = state, pkey index, port, qkey */
	FAB_DESTROY_QP = 15,
	FAB_ATTACH = 16,	/* gid, v[0] = LID */
	FAB_DETACH = 17,
	FAB_POST_RECV = 18,	/* v[0] = how many; no reply */
	FAB_SEND = 19,		/* see enum below; no reply, a FAB_CQE follows where asked for */
	FAB_RAISE = 20,		/* index = event, obj: deliver this event to my own context; no reply */
	FAB_CQE = 30,		/* on a CQ connection, see below */
	FAB_EVENT = 31,		/* on an async connection: index = event, obj = port, QP or CQ */
	FAB_UMAD_REGISTER = 40,	/* on a control connection: id = open port, obj = agent, v = class, version, rmpp,
				 * solicited-only; gid = method mask */
	FAB_UMAD_UNREGISTER = 41,
	FAB_UMAD_SEND = 42,	/* obj = agent, payload = ib_user_mad and the MAD; no reply */
	FAB_UMAD_RECV = 43,	/* payload = ib_user_mad and the MAD */
};

/*
 * FAB_SEND: obj = QP, id = number of the work request, gid = DGID,
 * v = DLID, SL | path bits << 8, remote QP, remote qkey, flow label,
 *     hop limit << 8 | traffic class, SGID index, immediate, forced completion status.
 * FAB_CQE: obj = QP, id = number of the work request (sends),
 * v = status, byte count, source QP, SLID, SL, pkey index, immediate, path bits, epoch of the QP;
 * payload of a receive = 40 bytes of GRH and the datagram.
 */
enum {
	FAB_F_SIGNALED = 1,
	FAB_F_IMM = 2,
	FAB_F_GRH = 4,
	FAB_F_RECV = 8,		/* a CQE of the receive queue */
	FAB_F_SOLICITED = 16,
};

struct fab_device {
	char name[40];
	uint64_t node_guid;
	uint32_t ports;
	uint32_t index;
	uint32_t vendor_id;
	uint32_t part_id;
};

struct fab_port {
	uint32_t state;
	uint32_t max_mtu;
	uint32_t active_mtu;
	uint32_t gid_tbl_len;
	uint32_t cap_flags;
	uint32_t cap_flags2;
	uint32_t max_msg_sz;
	uint32_t pkey_tbl_len;
	uint32_t lid;
	uint32_t sm_lid;
	uint32_t lmc;
	uint32_t max_vl;
	uint32_t sm_sl;
	uint32_t subnet_timeout;
	uint32_t init_type_reply;
	uint32_t width;
	uint32_t speed;
	uint32_t phys_state;
	uint32_t link_layer;
	uint32_t pad;
	uint64_t gid_prefix;
	uint64_t port_guid;
};

#endif
