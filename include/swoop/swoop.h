/* swoop/swoop.h: the whole public interface. */
#ifndef SWOOP_SWOOP_H
#define SWOOP_SWOOP_H

#include "swoop/config.h"
#include "swoop/data.h"
#include "swoop/device.h"
#include "swoop/graph.h"
#include "swoop/io.h"
#include "swoop/kernel.h"
#include "swoop/nn.h"
#include "swoop/status.h"
#include "swoop/tools.h"
#include "swoop/train.h"

#endif
