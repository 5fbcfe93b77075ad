// Package doctor examines an installation: what is wrong with its settings, its data folder and its servers, and what
// helps. It changes nothing.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/grammar"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/projections/datapoints"
)

// State is what a finding means.
type State string

// The states. Only Broken is a failure.
const (
	OK     State = "ok"
	Note   State = "note"
	Broken State = "broken"
)

// Finding is what one check found.
type Finding struct {
	Check string `json:"check"`
	State State  `json:"state"`
	Found string `json:"found"`
	// Remedy is what helps, "" if nothing is to be done.
	Remedy string `json:"remedy,omitempty"`
}

// Report is all that was found.
type Report struct {
	Findings []Finding `json:"findings"`
	// Settings are those in force that differ from the defaults: of the running service, else of this command.
	Settings map[string]string `json:"settings"`
	// Damaged are the streams that somebody else deleted, truncated or aged in the event store.
	Damaged []datapoints.DamagedStream `json:"damaged"`
}

// Config is an installation.
type Config struct {
	// Service are the settings; those that are wrong are left out.
	Service server.Config
	// Wrong are the settings that cannot work, each as a line. Unknown are variables that no setting reads.
	Wrong   []string
	Unknown []grammar.Unknown
	Getenv  func(string) string
	Now     func() time.Time
}

// checkTimeout bounds one check of a server.
const checkTimeout = 5 * time.Second

// examination is a report that is being made.
type examination struct {
	Config
	Report
}

// Examine checks an installation: the service that runs on the data folder, or else what a start would need.
func Examine(ctx context.Context, c Config) Report {
	e := &examination{c, Report{
		Findings: []Finding{}, Settings: c.Service.InForce, Damaged: []datapoints.DamagedStream{},
	}}
	e.checkSettings()
	if len(c.Wrong) > 0 { // the others would be checked with values that are not meant
		e.checkFolder()
		return e.Report
	}
	service := operatorapi.Dial(c.Service.Data.Dir)
	is, err := operatorapi.ServiceStatus.Call(ctx, service, operatorapi.None{})
	switch {
	case err == nil:
		e.checkService(is)
		e.checkStreams(ctx, service)
	case !errors.Is(err, operatorapi.ErrNotRunning):
		e.broken("service", "run annals doctor as the user of the service, of the same version", "%v", err)
		return e.Report
	default:
		e.ok("service", "none runs on %s: what a start needs is checked", c.Service.Data.Dir)
		if !e.checkFolder() {
			return e.Report
		}
		e.checkAddresses(ctx)
		e.checkDisk()
		e.checkDatabase(ctx)
		e.checkEventStore(ctx)
		e.checkProbes(ctx)
	}
	e.listSettings()
	e.checkKeys()
	e.checkCertificate()
	e.checkClock()
	e.checkProxies(ctx, err == nil)
	e.checkBackup()
	return e.Report
}

func (e *examination) add(check string, state State, remedy, format string, args ...any) {
	found := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	e.Findings = append(e.Findings, Finding{check, state, found, remedy})
}

func (e *examination) ok(check, format string, args ...any) { e.add(check, OK, "", format, args...) }

func (e *examination) note(check, remedy, format string, args ...any) {
	e.add(check, Note, remedy, format, args...)
}

func (e *examination) broken(check, remedy, format string, args ...any) {
	e.add(check, Broken, remedy, format, args...)
}

// checkSettings reports settings that cannot work, and variables that no setting reads.
func (e *examination) checkSettings() {
	for _, wrong := range e.Wrong {
		e.broken("settings", "correct it (docs/settings.md)", "%s", wrong)
	}
	for _, u := range e.Unknown {
		remedy := "remove it"
		if u.Nearest != "" {
			remedy = "is it " + u.Nearest + "?"
		}
		e.note("settings", remedy, "no setting reads %s", u.Name)
	}
}

// listSettings lists the settings in force.
func (e *examination) listSettings() {
	list := make([]string, 0, len(e.Settings))
	for _, name := range slices.Sorted(maps.Keys(e.Settings)) {
		list = append(list, name+"="+e.Settings[name])
	}
	if len(list) == 0 {
		list = []string{"none but the defaults"}
	}
	e.ok("settings", "in force: %s", strings.Join(list, ", "))
}

// Print implements the summary of a command.
func (r Report) Print(to io.Writer) {
	for _, f := range r.Findings {
		_, _ = fmt.Fprintln(to, f.text())
	}
}

// Err returns an error that counts what is broken, nil if nothing is.
func (r Report) Err() error {
	broken := 0
	for _, f := range r.Findings {
		if f.State == Broken {
			broken++
		}
	}
	switch broken {
	case 0:
		return nil
	case 1:
		return errors.New("one thing is broken: its line has what to do")
	}
	return fmt.Errorf("%d things are broken: each line has what to do", broken)
}
