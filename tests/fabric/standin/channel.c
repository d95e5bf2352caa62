/*
 * Completion channels. The descriptor is an epoll descriptor over the connections of its CQs, each
 * EPOLLONESHOT: asking for a notification arms it, so that one request gives one event. Should the
 * program take the completion before it takes the event, the event moves to the CQ's eventfd: it is
 * still there to be taken, as it is on hardware.
 */
#define _GNU_SOURCE
#include "standin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct fab_channel *ch = calloc(1, sizeof(*ch));
	/* No events but a hang-up: the device has gone. */
	struct epoll_event gone = { .events = 0, .data.u64 = 0 };
	int err = 0;

	if (!ch)
		return NULL;
	pthread_mutex_lock(&fab_lock);
	ch->channel.fd = -1;
	if (!fab_expect(FAB_CONTEXT, context, "ibv_create_comp_channel")) {
		err = EINVAL;
	} else {
		ch->channel.context = context;
		ch->channel.fd = epoll_create1(EPOLL_CLOEXEC);
		if (ch->channel.fd < 0 ||
		    epoll_ctl(ch->channel.fd, EPOLL_CTL_ADD, ctx_of(context)->ctl, &gone))
			err = errno;
	}
	if (err) {
		pthread_mutex_unlock(&fab_lock);
		if (ch->channel.fd >= 0)
			close(ch->channel.fd);
		free(ch);
		errno = err;
		return NULL;
	}
	fab_add(&ch->obj, FAB_CHANNEL, &ch->channel, context);
	pthread_mutex_unlock(&fab_lock);
	return &ch->channel;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	int err = 0;

	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_CHANNEL, channel, "ibv_destroy_comp_channel")) {
		err = EINVAL;
	} else if (channel->refcnt) {
		fab_violation("ibv_destroy_comp_channel: %d completion queues still use it", channel->refcnt);
		err = EBUSY;
	} else {
		struct fab_channel *ch = OBJ_OF(fab_channel, channel, channel);

		fab_remove(&ch->obj);
		close(channel->fd);
		free(ch);
	}
	pthread_mutex_unlock(&fab_lock);
	return err;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct epoll_event event;
	struct fab_cq *found;
	uint64_t count;
	int fd, flags, n;

	pthread_mutex_lock(&fab_lock);
	if (!fab_expect(FAB_CHANNEL, channel, "ibv_get_cq_event")) {
		pthread_mutex_unlock(&fab_lock);
		errno = EINVAL;
		return -1;
	}
	fd = channel->fd;
	pthread_mutex_unlock(&fab_lock);
	flags = fcntl(fd, F_GETFL);
	for (;;) {
		n = epoll_wait(fd, &event, 1, flags >= 0 && (flags & O_NONBLOCK) ? 0 : -1);
		if (n == 0)
			errno = EAGAIN;
		if (n <= 0)
			return -1;
		if (event.data.u64 == 0) {
			errno = EIO;
			return -1;
		}
		pthread_mutex_lock(&fab_lock);
		found = fab_cq_by_handle(channel->context, (uint32_t)event.data.u64);
		if (found && (event.data.u64 & FAB_EVENT_MOVED)) {
			/* Another thread may have been quicker. */
			if (read(found->event_fd, &count, sizeof(count)) < 0)
				found = NULL;
		} else if (found && !found->armed) {
			found = NULL;
		} else if (found) {
			found->armed = false;
		}
		if (found) {
			found->events++;
			*cq = &found->cq;
			*cq_context = found->cq.cq_context;
		}
		pthread_mutex_unlock(&fab_lock);
		if (found)
			return 0;
	}
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	pthread_mutex_lock(&fab_lock);
	if (fab_expect(FAB_CQ, cq, "ibv_ack_cq_events")) {
		struct fab_cq *c = cq_of(cq);

		if (n > c->events - c->acked) {
			fab_violation("ibv_ack_cq_events: %u acknowledged, %u outstanding (destroying the "
				      "completion queue would hang)", n, c->events - c->acked);
			n = c->events - c->acked;
		}
		c->acked += n;
		cq->comp_events_completed += n;
	}
	pthread_mutex_unlock(&fab_lock);
}
