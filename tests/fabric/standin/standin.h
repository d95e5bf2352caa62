/*
 * Insides of the stand-in for libibverbs and libibumad. One lock guards everything: the calls are
 * short, and what blocks (waiting for events) blocks outside of it.
 */
#ifndef FABRIC_STANDIN_H
#define FABRIC_STANDIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <infiniband/verbs.h>

#include "proto.h"

#define EXPORT __attribute__((visibility("default")))
#define GRH_BYTES 40
/* In the epoll data of a completion channel, beside the CQ's handle. */
#define FAB_EVENT_MOVED (1ULL << 32)

/* Limits that the device reports and keeps to. */
#define MAX_QP_WR 16384
#define MAX_SGE 16
#define MAX_CQE 65536
#define MAX_INLINE 512
#define MAX_MCAST_ATTACH 240

extern pthread_mutex_t fab_lock;

/* Every object that a program holds is in this list, so that a stale pointer is recognised without
 * touching what it points to. */
enum fab_kind { FAB_CONTEXT, FAB_PD, FAB_MR, FAB_AH, FAB_CHANNEL, FAB_CQ, FAB_QP };

struct fab_obj {
	struct fab_obj *next;
	enum fab_kind kind;
	void *handle;		/* the pointer that the program knows */
	void *parent;		/* the context, or for what belongs to a PD, that */
};

struct fab_context {
	struct fab_obj obj;
	int ctl;
	uint64_t id;
	uint32_t async_seen;	/* events handed out ... */
	uint32_t async_acked;	/* ... and acknowledged */
	struct verbs_context verbs;
};

struct fab_pd {
	struct fab_obj obj;
	struct ibv_pd pd;
};

struct fab_mr {
	struct fab_obj obj;
	struct ibv_mr mr;
	unsigned int access;
};

struct fab_ah {
	struct fab_obj obj;
	struct ibv_ah ah;
	struct ibv_ah_attr attr;
};

struct fab_channel {
	struct fab_obj obj;
	struct ibv_comp_channel channel;
};

struct fab_cqe {
	struct ibv_wc wc;
	uint32_t qp_epoch;
	uint64_t send_seq;	/* of a send: the work request that it completes */
	bool send;
};

struct fab_cq {
	struct fab_obj obj;
	struct ibv_cq cq;
	int fd;			/* completions come in here */
	int event_fd;		/* events whose completions were taken first */
	bool armed;
	struct fab_cqe *ring;
	uint32_t head, count;
	bool overflowed;
	uint32_t events;	/* completion events handed out */
	uint32_t acked;
};

struct fab_recv {
	uint64_t wr_id;
	int num_sge;
	struct ibv_sge sge[MAX_SGE];
};

struct fab_qp {
	struct fab_obj obj;
	struct ibv_qp qp;
	struct ibv_qp_cap cap;
	bool sig_all;
	uint32_t epoch;		/* counts resets: completions from before are void */
	struct fab_recv *rq;
	uint32_t rq_head, rq_count;
	uint64_t *sq;		/* wr_id by number of the work request */
	uint64_t sq_next, sq_done;
	uint32_t attached;
	uint16_t pkey_index;
	uint8_t port;
	uint32_t qkey;
};

#define OBJ_OF(type, member, ptr) ((struct type *)((char *)(ptr) - offsetof(struct type, member)))

static inline struct fab_context *ctx_of(struct ibv_context *c)
{
	return OBJ_OF(fab_context, verbs.context, c);
}

static inline struct fab_qp *qp_of(struct ibv_qp *qp) { return OBJ_OF(fab_qp, qp, qp); }
static inline struct fab_cq *cq_of(struct ibv_cq *cq) { return OBJ_OF(fab_cq, cq, cq); }
static inline struct fab_ah *ah_of(struct ibv_ah *ah) { return OBJ_OF(fab_ah, ah, ah); }
static inline struct fab_mr *mr_of(struct ibv_mr *mr) { return OBJ_OF(fab_mr, mr, mr); }

/* violation.c */
void fab_violation(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* objects.c */
void fab_add(struct fab_obj *obj, enum fab_kind kind, void *handle, void *parent);
void fab_remove(struct fab_obj *obj);
bool fab_live(enum fab_kind kind, const void *handle);
bool fab_expect(enum fab_kind kind, const void *handle, const char *call);
struct fab_obj *fab_child(const void *parent, enum fab_kind kind);
struct fab_obj *fab_find(bool (*match)(const struct fab_obj *, const void *), const void *arg);
struct fab_qp *fab_qp_by_number(const struct ibv_context *context, uint32_t qpn);
struct fab_cq *fab_cq_by_handle(const struct ibv_context *context, uint32_t handle);
struct fab_mr *fab_mr_by_lkey(const struct ibv_pd *pd, uint32_t lkey);

/* link.c */
const char *fab_dir(void);
const char *fab_host(void);

/* neigh.c: what a socket has received, with the hardware addresses that the kernel does not keep */
ssize_t fab_complete_neighbours(int fd, void *buf, ssize_t n, size_t size);
int fab_open_link(uint32_t kind, uint64_t id, uint32_t obj, uint32_t port, const char *device);
int fab_open_named(uint32_t kind, uint64_t id, uint32_t obj, uint32_t port, const char *device, uint64_t *name);
int fab_send(int fd, struct fab_msg *msg, const void *payload, size_t len);
int fab_call(int fd, struct fab_msg *msg, const void *payload, size_t len, void *reply, size_t room);
int fab_ask(const char *device);

/* port.c */
int fab_port_info(int ctl, uint32_t port, struct fab_port *out);

/* memory.c */
bool fab_check_sge(struct ibv_pd *pd, const struct ibv_sge *sge, bool write, const char *what);

/* cq.c */
void fab_drain(struct fab_cq *cq);
void fab_purge(struct fab_cq *cq, uint32_t qpn);
int fab_poll_cq(struct ibv_cq *cq, int num, struct ibv_wc *wc);
int fab_req_notify(struct ibv_cq *cq, int solicited);

/* qpstate.c */
int fab_set_state(struct fab_qp *qp, enum ibv_qp_state state);

/* post.c */
int fab_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fab_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif
