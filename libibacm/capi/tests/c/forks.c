/*
 * Forks while other threads ask, and from a callback: forks SOCKET. Says how many children and calls had no answer, and
 * how the child of the callback ended.
 */
#include <infiniband/ib_acm.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int stop, failures;

static int ask(void)
{
	struct ib_path_record path;

	memset(&path, 0, sizeof(path));
	path.dlid = 1;
	return ib_acm_resolve_path(&path);
}

static void *run(void *unused)
{
	while (!stop)
		failures += ask() != 0;
	return unused;
}

struct many {
	int calls, unanswered;
	pid_t child;
};

static void each(void *context, size_t index, int result, const struct ib_path_record *path)
{
	struct many *many = context;

	(void)index;
	many->unanswered += !path && result < 0;
	if (!many->calls++)
		many->child = fork();
	if (!many->child)
		alarm(20);
}

/* What is open belongs to the parent, and what comes after the child. */
static int fork_in_callback(void)
{
	static const char *dests[600];
	struct many many = { 0, 0, -1 };
	int i, left, status = -1;

	/* The child has what is left of it. */
	ib_acm_set_timeout(20000);
	for (i = 0; i < 600; i++)
		dests[i] = "10.77.0.2";
	left = ib_acm_resolve_many(NULL, dests, 600, each, &many);
	if (!many.child)
		_exit(many.calls != 600 || left != many.unanswered || left == 0 || left > 400 || ask());
	waitpid(many.child, &status, 0);
	return many.calls != 600 || left ? -1 : status;
}

int main(int argc, char **argv)
{
	pthread_t threads[4];
	int i, status, children = 0;

	if (argc != 2 || ib_acm_set_server(argv[1]) || ib_acm_set_timeout(5000))
		return 2;
	for (i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, run, NULL))
			return 3;
	for (i = 0; i < 100; i++) {
		pid_t child = fork();

		if (!child) {
			/* A lock that nobody releases would be waited for without end. */
			alarm(10);
			_exit(ask() != 0);
		}
		waitpid(child, &status, 0);
		children += status != 0;
	}
	stop = 1;
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	printf("%d %d %d\n", children, (int)failures, fork_in_callback());
	return 0;
}
