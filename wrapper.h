/* What build.rs hands to bindgen. */
#include <infiniband/verbs.h>
#include <infiniband/umad.h>
