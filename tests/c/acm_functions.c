/*
 * Every function of infiniband/acm_prov.h with the type that it has in the binary interface: does not compile with a
 * header that says otherwise. Nothing is run.
 */
#include <infiniband/acm_prov.h>

struct functions {
	void (*write)(int, const char *, ...);
	void (*format_name)(int, char *, size_t, uint8_t, const uint8_t *, size_t);
	int (*any_gid)(union ibv_gid *);
	uint8_t (*gid_index)(struct acm_port *, union ibv_gid *);
	int (*get_gid)(struct acm_port *, int, union ibv_gid *);
	__be64 (*comp_mask)(struct ibv_path_record *);
	int (*resolve_response)(uint64_t, struct acm_msg *);
	int (*query_response)(uint64_t, struct acm_msg *);
	enum ibv_rate (*get_rate)(uint8_t, uint8_t);
	enum ibv_mtu (*convert_mtu)(int);
	enum ibv_rate (*convert_rate)(int);
	struct acm_sa_mad *(*alloc)(const struct acm_endpoint *, void *, void (*)(struct acm_sa_mad *));
	void (*free)(struct acm_sa_mad *);
	int (*send)(struct acm_sa_mad *);
	const char *(*opts_file)(void);
	void (*increment)(int);
	int (*provider_query)(struct acm_provider **, uint32_t *);
};

extern const struct functions all_functions;
const struct functions all_functions = {
	acm_write, acm_format_name, ib_any_gid, acm_gid_index, acm_get_gid, acm_path_comp_mask, acm_resolve_response,
	acm_query_response, acm_get_rate, acm_convert_mtu, acm_convert_rate, acm_alloc_sa_mad, acm_free_sa_mad,
	acm_send_sa_mad, acm_get_opts_file, acm_increment_counter, provider_query,
};
