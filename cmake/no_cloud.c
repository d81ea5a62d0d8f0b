// The functions that HDF5's reader of cloud storage calls, for programs that are linked without libcurl and libcrypto:
// see static.cmake. Nothing here opens such files, so nothing calls these functions.
#include <stdlib.h>

#define UNUSED(name) \
  void name(void) { abort(); }
UNUSED(curl_easy_cleanup)
UNUSED(curl_easy_init)
UNUSED(curl_easy_perform)
UNUSED(curl_easy_setopt)
UNUSED(curl_global_cleanup)
UNUSED(curl_global_init)
UNUSED(curl_slist_append)
UNUSED(curl_slist_free_all)
UNUSED(EVP_sha256)
UNUSED(HMAC)
UNUSED(SHA256)
