#include <gtest/gtest.h>
#include "db/store.h"
