/* layers.h: what else is asked of a list of layers than to be built (swoop/io.h: sw_model_layers). */
#ifndef SW_IO_LAYERS_H
#define SW_IO_LAYERS_H

#include "base/base.h"

/* Does this model ("layers:[…]") begin with an embedding, so that integers are tokens to it? */
bool sw__layers_read_tokens(const char *model);

#endif
