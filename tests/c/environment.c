/*
 * Loaded into a program: prints the environment that the program has when it ends.
 */
#include <stdio.h>

extern char **environ;

__attribute__((destructor)) static void say(void)
{
	char **variable;

	for (variable = environ; variable && *variable; variable++)
		fprintf(stderr, "environment: %s\n", *variable);
}
