// Package doctor examines an installation: what is wrong with its settings, its data folder and its servers, and what
// helps. It changes nothing.
package doctor

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
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

// checkService reports how a running service is, and which settings of this environment it does not have.
func (e *examination) checkService(is operatorapi.Status) {
	e.ok("service", "version %s runs as pid %d on %s", is.Version, is.PID, is.DataDir)
	for _, part := range is.NotReady {
		e.broken("service", "deploy/RUNBOOK.md#health has what to do", "it is not ready: %s", part)
	}
	for _, line := range is.Remarks.Lines() {
		e.note("service", "deploy/RUNBOOK.md#health has what to do", "%s", line)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Settings)) {
		if here, there := e.Settings[name], is.Settings[name]; here != there && name != "ANNALS_DATA_DIR" {
			if there == "" {
				there = "the default"
			}
			e.note("settings", "restart the service with it, or unset it here",
				"%s is %s here, and %s in the running service", name, here, there)
		}
	}
	e.Settings = is.Settings
	if is.API != "" {
		e.Service.URLs.API = is.API
	}
	e.Service.TLSCert, e.Service.TLSKey = is.Settings["ANNALS_TLS_CERT"], is.Settings["ANNALS_TLS_KEY"]
	if is.DiskFree != nil && is.DiskRequired != nil {
		e.disk(*is.DiskFree, *is.DiskRequired)
	}
}

// checkKeys reports keys that are missing, unreadable or open to others. It compares none with the log.
func (e *examination) checkKeys() {
	data := e.Service.Data
	key, err := data.ReadHashKey()
	switch {
	case err != nil:
		e.broken("keys", "restore it from a backup; a log opens only with its key", "%v", err)
	case key == nil && !data.IsNew():
		e.broken("keys", "restore hash.key from a backup, or set ANNALS_HASH_KEY: the log opens only with its key",
			"%s has no hash key", data.Dir)
	case data.HashKey != "" && e.differs(key):
		e.broken("keys", "unset ANNALS_HASH_KEY if the log was written with the file, else move the file away",
			"ANNALS_HASH_KEY is not the key in %s", filepath.Join(data.Dir, datafolder.HashKeyFile))
	default:
		e.ok("keys", "the hash key can be read")
	}
	if _, err := data.KnownSealKeys(); err != nil {
		e.broken("keys", "restore it from a backup (deploy/RUNBOOK.md#seal-keys)", "the seal keys cannot be read: %v", err)
	}
	for _, name := range []string{datafolder.HashKeyFile, datafolder.SealKeyFile, datafolder.CredentialsFile} {
		path := filepath.Join(data.Dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&othersMode != 0 {
			e.broken("keys", "chmod 600 "+path, "other users of this machine may read %s (mode %#o)", path, info.Mode().Perm())
		}
	}
}

// differs reports whether the file of the folder holds another hash key than the one in the settings.
func (e *examination) differs(key []byte) bool {
	stored, err := datafolder.Folder{Dir: e.Service.Data.Dir}.ReadHashKey()
	return err == nil && stored != nil && !bytes.Equal(stored, key)
}

// expiresSoon is how long before its end a certificate is noted.
const expiresSoon = 14 * 24 * time.Hour

// checkCertificate reports a certificate that callers would refuse.
func (e *examination) checkCertificate() {
	if e.Service.TLSCert == "" {
		return
	}
	const check, renew = "keys", "renew it; the service reads both files again when they change"
	pair, err := tls.LoadX509KeyPair(e.Service.TLSCert, e.Service.TLSKey)
	if err != nil {
		e.broken(check, "name a certificate and its key with ANNALS_TLS_CERT and ANNALS_TLS_KEY",
			"%s and %s cannot be used: %v", e.Service.TLSCert, e.Service.TLSKey, err)
		return
	}
	end, now := pair.Leaf.NotAfter, e.Now()
	until := end.UTC().Format(time.RFC3339)
	switch {
	case now.After(end):
		e.broken(check, renew, "the certificate %s ended at %s", e.Service.TLSCert, until)
	case now.Before(pair.Leaf.NotBefore):
		e.broken("clock", clockRemedy, "the certificate %s begins only at %s", e.Service.TLSCert,
			pair.Leaf.NotBefore.UTC().Format(time.RFC3339))
	case end.Sub(now) < expiresSoon:
		e.note(check, renew, "the certificate %s ends at %s", e.Service.TLSCert, until)
	default:
		e.ok(check, "the certificate is valid until %s", until)
	}
	if u, err := url.Parse(e.Service.URLs.API); err == nil && e.Service.URLs.API != "" {
		if err := pair.Leaf.VerifyHostname(u.Hostname()); err != nil {
			e.broken(check, "get one for that name, or correct ANNALS_API_URL",
				"the certificate does not fit ANNALS_API_URL: %v", err)
		}
	}
}

// cures are what helps for each damage of a stream.
var cures = map[string]string{
	datapoints.StreamDeleted:   "delete its data point with the API, or restore the event store from a backup",
	datapoints.StreamHidden:    "write to it, or take the soft deletion out of its metadata, before a scavenge",
	datapoints.StreamTruncated: "take the truncation out of its metadata before a scavenge",
	datapoints.StreamAged:      "take the age out of its metadata before a scavenge",
	datapoints.StreamCounted:   "take the count out of its metadata before a scavenge",
}

// checkStreams finds the streams that somebody else deleted, truncated or aged in the event store.
func (e *examination) checkStreams(ctx context.Context, service *operatorapi.Client) {
	err := operatorapi.ListDamaged.Call(ctx, service, operatorapi.None{}, func() {},
		func(d datapoints.DamagedStream) error {
			e.Damaged = append(e.Damaged, d)
			e.broken("streams", cures[d.Damage],
				"somebody else %s the stream %s (position %d)", damages[d.Damage], d.Stream, d.Position)
			return nil
		})
	switch {
	case err != nil:
		e.note("streams", "run annals doctor on the data folder of a process with the role write",
			"damaged streams cannot be listed: %v", err)
	case len(e.Damaged) == 0:
		e.ok("streams", "no stream is damaged")
	}
}

// damages are the verbs of the damages.
var damages = map[string]string{
	datapoints.StreamDeleted: "deleted", datapoints.StreamHidden: "hid", datapoints.StreamTruncated: "truncated",
	datapoints.StreamAged: "set an age for", datapoints.StreamCounted: "set a count for",
}

// text is a finding as one line.
func (f Finding) text() string {
	line := fmt.Sprintf("%-7s %s: %s", f.State, f.Check, f.Found)
	if f.Remedy != "" {
		line += " -> " + f.Remedy
	}
	return line
}
