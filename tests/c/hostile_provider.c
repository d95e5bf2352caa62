/*
 * A provider that breaks the rules, without breaking memory. A line of the options file says how:
 *
 *     hostile MODE [NUMBER]
 *
 * Where it answers as it should, the path leads to what was asked for: dgid is the destination's first 16 bytes, slid
 * has the low bits of a counter of its calls. What it notices itself goes to the log: "hostile: ...".
 */
#define _GNU_SOURCE
#include <endian.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <infiniband/acm_prov.h>

#define THREADS 8
#define QUEUE 65536

struct job {
	uint64_t id;
	struct acm_msg msg;
	int query;
};

struct ep {
	const struct acm_endpoint *core;
};

static char mode[64] = "good";
static int number;
static int calls, served;

/* Questions that other threads answer. */
static struct job *queue[QUEUE];
static unsigned head, tail;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;

/* What is kept longer than it may be. */
static const struct acm_endpoint *closed_endpoint;
static struct acm_port *closed_port;
static struct job *last;

static int is(const char *name)
{
	return !strcmp(mode, name);
}

static void respond(const struct job *job, uint64_t id, struct acm_msg *msg)
{
	int result = job->query ? acm_query_response(id, msg) : acm_resolve_response(id, msg);

	/* Once for a mode that does it a lot. */
	if (result && __atomic_fetch_add(&served, 1, __ATOMIC_RELAXED) < 3)
		acm_write(0, "hostile: an answer was refused (%d)\n", result);
}

/* A good answer to the question. */
static void fill(struct acm_msg *msg)
{
	struct acm_ep_addr_data *entry = &msg->resolve_data[0];
	int is_path = entry->type == ACM_EP_INFO_PATH;
	struct acm_ep_addr_data wanted = msg->resolve_data[is_path ? 0 : msg->hdr.dst_index];
	struct acm_ep_addr_data source = msg->resolve_data[msg->hdr.src_index & 7];
	int entries = 1;

	memset(entry, 0, sizeof(*entry));
	entry->type = ACM_EP_INFO_PATH;
	entry->flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
	if (is_path)
		entry->info.path = wanted.info.path;
	else
		memcpy(entry->info.path.dgid.raw, wanted.info.addr, 16);
	entry->info.path.slid = htobe16(__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) & 0x3fff);
	if (!is_path && msg->hdr.src_out) {
		msg->resolve_data[1] = source;
		entries = 2;
	}
	msg->hdr.opcode |= ACM_OP_ACK;
	msg->hdr.status = ACM_STATUS_SUCCESS;
	msg->hdr.length = ACM_MSG_HDR_LENGTH + entries * ACM_MSG_EP_LENGTH;
	memset(msg->hdr.data, 0, sizeof(msg->hdr.data));
}

static void answer(struct job *job)
{
	fill(&job->msg);
	respond(job, job->id, &job->msg);
}

static void flood(struct job *job, unsigned many, unsigned *seed)
{
	struct acm_msg msg = job->msg;
	unsigned i;

	fill(&msg);
	for (i = 0; i < many; i++) {
		uint64_t id = ((uint64_t)rand_r(seed) << 33) ^ ((uint64_t)rand_r(seed) << 11) ^ i;

		/* Small numbers, the neighbours of the right one, anything. */
		respond(job, i % 3 == 0 ? i : i % 3 == 1 ? job->id + 1 + i : id, &msg);
	}
}

/* -- Threads of its own -- */

static void push(struct job *job)
{
	pthread_mutex_lock(&lock);
	if (tail - head < QUEUE)
		queue[tail++ % QUEUE] = job;
	pthread_cond_signal(&filled);
	pthread_mutex_unlock(&lock);
}

static void *worker(void *context)
{
	unsigned seed = (unsigned)(uintptr_t)context + 1;
	struct job *job;

	for (;;) {
		pthread_mutex_lock(&lock);
		while (head == tail)
			pthread_cond_wait(&filled, &lock);
		job = queue[head++ % QUEUE];
		pthread_mutex_unlock(&lock);
		if (is("late"))
			usleep(number * 1000);
		if (is("threads"))
			flood(job, rand_r(&seed) % 16, &seed);
		answer(job);
		free(job);
	}
	return NULL;
}

static void start_threads(void)
{
	static int started;
	pthread_t thread;
	uintptr_t i;

	if (!started && (is("late") || is("threads") || is("thread"))) {
		started = 1;
		for (i = 0; i < THREADS; i++) {
			if (!pthread_create(&thread, NULL, worker, (void *)i))
				pthread_detach(thread);
		}
	}
}

/* -- MADs -- */

static void ask(struct acm_sa_mad *mad, struct acm_msg *msg)
{
	static uint32_t tid;
	struct umad_sa_packet *packet = &mad->sa_mad;
	struct ibv_path_record *path = &msg->resolve_data[0].info.path;

	packet->mad_hdr.base_version = 1;
	packet->mad_hdr.mgmt_class = UMAD_CLASS_SUBN_ADM;
	packet->mad_hdr.class_version = UMAD_SA_CLASS_VERSION;
	packet->mad_hdr.method = UMAD_METHOD_GET;
	packet->mad_hdr.tid = htobe64(__atomic_add_fetch(&tid, 1, __ATOMIC_RELAXED));
	packet->mad_hdr.attr_id = htobe16(UMAD_SA_ATTR_PATH_REC);
	packet->comp_mask = acm_path_comp_mask(path);
	memcpy(packet->data, path, sizeof(*path));
}

struct wait {
	int done, status;
	struct ibv_path_record path;
};

static void wake(struct acm_sa_mad *mad)
{
	struct wait *wait = (struct wait *)mad->context;

	pthread_mutex_lock(&lock);
	wait->done++;
	wait->status = mad->umad.status ? (int)mad->umad.status : be16toh(mad->sa_mad.mad_hdr.status);
	memcpy(&wait->path, mad->sa_mad.data, sizeof(wait->path));
	pthread_cond_broadcast(&answered);
	pthread_mutex_unlock(&lock);
}

/* Sends it and waits for its handler: as long as a time limit of the core's allows. */
static int sent_and_answered(struct acm_sa_mad *mad, struct wait *wait)
{
	if (acm_send_sa_mad(mad))
		return 0;
	pthread_mutex_lock(&lock);
	while (!wait->done)
		pthread_cond_wait(&answered, &lock);
	pthread_mutex_unlock(&lock);
	return 1;
}

static void freed_in_handler(struct acm_sa_mad *mad)
{
	acm_free_sa_mad(mad);
	acm_free_sa_mad(mad);
	if (!acm_send_sa_mad(mad))
		acm_write(0, "hostile: a freed MAD was sent\n");
}

/* What may not be done with MADs. Nothing that it does is memory of its own, so that only the core can get it wrong. */
static void misuse_mads(struct ep *ep, struct job *job)
{
	struct wait wait = { 0, 0, job->msg.resolve_data[0].info.path };
	struct acm_sa_mad *mad = acm_alloc_sa_mad(ep->core, &wait, wake);
	struct acm_sa_mad *other;
	static char nothing[4096] __attribute__((aligned(16)));

	if (!mad)
		return;
	ask(mad, &job->msg);
	if (is("mad_twice")) {
		int again = acm_send_sa_mad(mad);

		/* The first may go out, the second may not, and the handler is called once. */
		if (!acm_send_sa_mad(mad))
			acm_write(0, "hostile: a MAD was sent twice\n");
		pthread_mutex_lock(&lock);
		while (!again && !wait.done)
			pthread_cond_wait(&answered, &lock);
		pthread_mutex_unlock(&lock);
		usleep(50000);
		acm_write(0, "hostile: %d calls of the handler\n", wait.done);
		acm_free_sa_mad(mad);
	} else if (is("mad_free")) {
		acm_free_sa_mad(mad);
		acm_free_sa_mad(mad);
		if (!acm_send_sa_mad(mad))
			acm_write(0, "hostile: a freed MAD was sent\n");
		/* Never one of the core's. */
		acm_free_sa_mad((struct acm_sa_mad *)(void *)nothing);
		acm_free_sa_mad(NULL);
		if (!acm_send_sa_mad((struct acm_sa_mad *)(void *)nothing) || !acm_send_sa_mad(NULL))
			acm_write(0, "hostile: what is no MAD was sent\n");
		other = acm_alloc_sa_mad(ep->core, NULL, freed_in_handler);
		if (other) {
			ask(other, &job->msg);
			acm_send_sa_mad(other);
		}
	} else if (is("mad_fly")) {
		/* Freed while it is under way: the handler is not called any more, or before the call comes back. */
		static struct wait forgotten;

		acm_free_sa_mad(mad);
		mad = acm_alloc_sa_mad(ep->core, &forgotten, wake);
		if (mad) {
			ask(mad, &job->msg);
			acm_send_sa_mad(mad);
			acm_free_sa_mad(mad);
		}
	} else { /* mad_leak */
		unsigned many = 1;

		while (acm_alloc_sa_mad(ep->core, NULL, wake) && many < 1000000)
			many++;
		acm_write(0, "hostile: %u MADs, and then no more\n", many);
		acm_free_sa_mad(mad);
	}
}

/* -- Answers that are none -- */

static void malform(struct job *job)
{
	struct acm_msg msg;
	static const int lengths[] = { 0, 17, 15, 65535, 16 + 71, 16 + 9 * 72, 592 };
	int kind = number ? number : __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % 13;

	fill(&job->msg);
	msg = job->msg;
	if (kind < 7)
		msg.hdr.length = lengths[kind];
	else if (kind == 7)
		msg.hdr.version = 99;
	else if (kind == 8)
		msg.hdr.opcode = 0x7f;
	else if (kind == 9)
		msg.hdr.tid = ~msg.hdr.tid;
	else if (kind == 10)
		memset(msg.hdr.data, 0xff, sizeof(msg.hdr.data));
	else if (kind == 12)
		msg.hdr.length = ACM_MSG_HDR_LENGTH;
	else
		msg.hdr.status = 0xee;
	respond(job, job->id, &msg);
}

/* -- Pointers of what is closed, and of what never was -- */

static void use_closed(void)
{
	static struct acm_endpoint never;
	static struct acm_port nowhere;
	union ibv_gid gid = { .raw = { 1 } };
	char name[8] = "";

	if (closed_endpoint && acm_alloc_sa_mad(closed_endpoint, NULL, wake))
		acm_write(0, "hostile: a MAD for a closed endpoint\n");
	if (acm_alloc_sa_mad(&never, NULL, wake) || acm_alloc_sa_mad(NULL, NULL, wake))
		acm_write(0, "hostile: a MAD for no endpoint\n");
	if (!acm_get_gid(&nowhere, 0, &gid) || !acm_get_gid(NULL, 0, &gid) ||
	    (closed_port && !acm_get_gid(closed_port, 0, &gid)))
		acm_write(0, "hostile: a GID of no port\n");
	acm_gid_index(&nowhere, &gid);
	acm_gid_index(closed_port, &gid);
	acm_format_name(0, name, sizeof(name), 77, gid.raw, sizeof(gid));
	acm_format_name(0, name, sizeof(name), ACM_EP_INFO_ADDRESS_IP6, gid.raw, 3);
	acm_increment_counter(-1);
	acm_increment_counter(1 << 30);
	acm_write(-5, "hostile: a level that is none\n");
	acm_write(0, "hostile: %5000s\nand more lines\n", "a long line");
	acm_get_rate(255, 255);
	acm_convert_mtu(-1);
	acm_convert_rate(-1);
}

/* -- Threads that are cancelled while they call the service -- */

static void *cancelled(void *context)
{
	struct job *job = (struct job *)context;

	/* At the first cancellation point: the write of a line, or of the wake-up. */
	pthread_cancel(pthread_self());
	if (job)
		answer(job);
	else
		acm_write(0, "hostile: last words\n");
	pthread_testcancel();
	acm_write(0, "hostile: it was not cancelled\n");
	return NULL;
}

static void cancel_one(struct job *job)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, cancelled, job))
		pthread_join(thread, NULL);
}

/* -- The interface -- */

static int asked(struct ep *ep, struct acm_msg *msg, uint64_t id, int query)
{
	struct job *job = (struct job *)malloc(sizeof(*job));
	unsigned seed = (unsigned)id;

	if (!job)
		return -1;
	job->id = id;
	job->msg = *msg;
	job->query = query;
	if (is("never")) {
		free(job);
		return 0;
	}
	if (is("late") || is("threads") || is("thread")) {
		push(job);
		return 0;
	}
	if (is("error_resolve") || is("error_all")) {
		free(job);
		return -1;
	}
	if (is("answer_and_error")) {
		answer(job);
		free(job);
		return -1;
	}
	if (is("twice")) {
		answer(job);
		answer(job);
	} else if (is("both")) { /* by the wrong function, too */
		answer(job);
		job->query = !job->query;
		answer(job);
	} else if (is("unknown")) {
		flood(job, 1000, &seed);
		answer(job);
	} else if (is("other")) {
		/* The one before gets this one's answer; the first in such a row waits for the second. */
		struct job *before = __atomic_exchange_n(&last, NULL, __ATOMIC_ACQ_REL);

		if (!before) {
			__atomic_store_n(&last, job, __ATOMIC_RELEASE);
			return 0;
		}
		fill(&job->msg);
		fill(&before->msg);
		respond(before, before->id, &job->msg);
		respond(job, job->id, &before->msg);
		free(before);
	} else if (is("malformed")) {
		malform(job);
	} else if (is("block")) {
		usleep(number * 1000);
		answer(job);
	} else if (is("wait_sa")) {
		struct wait wait = { 0, 0, msg->resolve_data[0].info.path };
		struct acm_sa_mad *mad = acm_alloc_sa_mad(ep->core, &wait, wake);

		if (mad) {
			ask(mad, msg);
			fill(&job->msg);
			if (!sent_and_answered(mad, &wait) || wait.status) {
				job->msg.hdr.status = ACM_STATUS_ENODATA;
				job->msg.hdr.length = ACM_MSG_HDR_LENGTH;
			} else {
				job->msg.resolve_data[0].info.path = wait.path;
			}
			respond(job, id, &job->msg);
			acm_free_sa_mad(mad);
		}
	} else if (!strncmp(mode, "mad_", 4)) {
		misuse_mads(ep, job);
		answer(job);
	} else if (is("cancel")) {
		cancel_one(NULL);
		cancel_one(job);
	} else if (is("closed")) {
		use_closed();
		answer(job);
	} else {
		answer(job);
	}
	free(job);
	return 0;
}

static int resolve(void *context, struct acm_msg *msg, uint64_t id)
{
	return asked((struct ep *)context, msg, id, 0);
}

static int query(void *context, struct acm_msg *msg, uint64_t id)
{
	return asked((struct ep *)context, msg, id, 1);
}

static int failing(const char *call)
{
	return is("error_all") || is(call);
}

static int open_device(const struct acm_device *device, void **context)
{
	*context = (void *)device;
	return failing("error_open_device") ? -1 : 0;
}

static int open_port(const struct acm_port *port, void *device, void **context)
{
	(void)device;
	start_threads();
	/* What is open has taken its place. */
	if (port == closed_port)
		closed_port = NULL;
	*context = (void *)port;
	return failing("error_open_port") ? -1 : 0;
}

static void close_port(void *context)
{
	use_closed();
	closed_port = (struct acm_port *)context;
}

static int open_endpoint(const struct acm_endpoint *core, void *port, void **context)
{
	struct ep *ep = (struct ep *)calloc(1, sizeof(*ep));

	(void)port;
	if (!ep || failing("error_open_endpoint")) {
		free(ep);
		return -1;
	}
	if (core == closed_endpoint)
		closed_endpoint = NULL;
	ep->core = core;
	*context = ep;
	return 0;
}

static void close_endpoint(void *context)
{
	struct ep *ep = (struct ep *)context;

	closed_endpoint = ep->core;
	free(ep);
}

static int add_address(const struct acm_address *address, void *endpoint, void **context)
{
	/* One address of all. */
	if (is("error_one_address") && address->type == ACM_EP_INFO_ADDRESS_IP6)
		return -1;
	*context = endpoint;
	return failing("error_add_address") ? -1 : 0;
}

static void nothing_to_close(void *context)
{
	(void)context;
}

static int handle_event(void *port, enum ibv_event_type type)
{
	(void)port;
	acm_write(0, "hostile: event %d\n", type);
	if (is("block"))
		usleep(number * 1000);
	return -1;
}

static void query_perf(void *context, uint64_t *values, uint8_t *count)
{
	int i;

	(void)context;
	if (is("never_counts"))
		pause();
	/* As many as there can be. */
	*count = is("counters") ? 255 : ACM_MAX_COUNTER;
	for (i = 0; i < *count; i++)
		values[i] = htobe64(i);
}

static struct acm_provider provider = {
	.size = sizeof(struct acm_provider),
	.version = 1,
	.name = "hostile",
	.open_device = open_device,
	.close_device = nothing_to_close,
	.open_port = open_port,
	.close_port = close_port,
	.open_endpoint = open_endpoint,
	.close_endpoint = close_endpoint,
	.add_address = add_address,
	.remove_address = nothing_to_close,
	.resolve = resolve,
	.query = query,
	.handle_event = handle_event,
	.query_perf = query_perf,
};

static void __attribute__((constructor)) start(void)
{
	FILE *file = fopen(acm_get_opts_file(), "r");
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "hostile %63s %i", mode, &number);
	if (file)
		fclose(file);
	acm_write(0, "hostile: %s %d\n", mode, number);
	if (is("state")) { /* what is the whole process's */
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		signal(SIGTERM, SIG_IGN);
		signal(SIGPIPE, SIG_DFL);
		umask(0);
		if (chdir("/usr"))
			acm_write(0, "hostile: there is no /usr\n");
	}
}

static void __attribute__((destructor)) end(void)
{
	if (is("destructor"))
		pause();
}

int provider_query(struct acm_provider **info, uint32_t *version)
{
	if (is("error_query"))
		return -1;
	if (is("version"))
		provider.version = 2;
	if (is("size"))
		provider.size = 8;
	if (is("no_functions"))
		provider.resolve = NULL, provider.open_port = NULL, provider.query_perf = NULL;
	if (is("no_name"))
		provider.name = NULL;
	*info = is("no_info") ? NULL : &provider;
	*version = provider.version;
	return 0;
}
