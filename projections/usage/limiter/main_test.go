package limiter_test

import (
	"testing"

	"github.com/annals-project/annals/internal/pg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
