package doctor

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
)

// damaged are the damaged streams of a server.
type damaged []datapoints.DamagedStream

func (d damaged) EachDamaged(_ context.Context, emit func(datapoints.DamagedStream) error) error {
	for _, s := range d {
		if err := emit(s); err != nil {
			return err
		}
	}
	return nil
}

// Damaged streams are listed with what helps, and are a failure.
func TestCmd(t *testing.T) {
	whole, broken := t.TempDir(), t.TempDir()
	operatortest.Serve(t, whole, operatorapi.DamageRoutes(damaged{})...)
	operatortest.Serve(t, broken, operatorapi.DamageRoutes(damaged{
		{Stream: "project-1", Damage: datapoints.StreamAged, Position: 7},
		{Stream: "memory-2", Damage: datapoints.StreamDeleted, Position: 9},
	})...)
	var out bytes.Buffer
	runtest.Must(t, (&Cmd{DataDir: whole}).Run(t.Context(), &out))
	if got := out.String(); got != "no stream is damaged\n" {
		t.Errorf("printed %q", got)
	}
	out.Reset()
	if err := (&Cmd{DataDir: broken}).Run(t.Context(), &out); err == nil {
		t.Error("damaged streams are no failure")
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[1], "project-1  aged") || !strings.Contains(lines[1], "take the age out") ||
		!strings.HasPrefix(lines[2], "memory-2   deleted") {
		t.Errorf("printed %s", &out)
	}
	out.Reset()
	if err := (&Cmd{DataDir: broken, JSON: true}).Run(t.Context(), &out); err == nil {
		t.Error("damaged streams are no failure")
	}
	if got := out.String(); !strings.HasPrefix(got, `{"damaged":[{"stream":"project-1","damage":"aged","position":7}`) {
		t.Errorf("printed %s", got)
	}
}

// Each damage has something that helps.
func TestCures(t *testing.T) {
	for _, d := range []string{
		datapoints.StreamDeleted, datapoints.StreamHidden, datapoints.StreamTruncated, datapoints.StreamAged,
		datapoints.StreamCounted,
	} {
		if cures[d] == "" {
			t.Errorf("nothing helps a stream that was %s", d)
		}
	}
}
