package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const unit = "systemd/annals.service"

// unitSettings returns the settings of the unit by section and name; a name may be there several times.
func unitSettings(t *testing.T) map[string][]string {
	t.Helper()
	settings, section := map[string][]string{}, ""
	for _, line := range strings.Split(string(read(t, unit)), "\n") {
		name, value, isSetting := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "#"), line == "":
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		case isSetting:
			settings[section+"."+name] = append(settings[section+"."+name], value)
		default:
			t.Fatalf("line %q is no setting", line)
		}
	}
	return settings
}

func TestSystemd_Settings(t *testing.T) {
	settings := unitSettings(t)
	for name, want := range map[string]string{
		"Service.ExecStart": "/usr/local/bin/annals serve", "Service.Restart": "on-failure", "Service.User": "annals",
		"Service.LimitNOFILE": "65536", "Service.NoNewPrivileges": "yes", "Service.ProtectSystem": "strict",
		"Service.CapabilityBoundingSet": "", "Service.StateDirectory": "annals", "Service.KillMode": "mixed",
		"Install.WantedBy": "multi-user.target",
	} {
		if got := settings[name]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := strings.Join(settings["Service.Environment"], " "); !strings.Contains(got, "ANNALS_DATA_DIR=/var/lib/annals") {
		t.Errorf("the data folder is not the one that the unit may write: %s", got)
	}
}

// systemd itself knows every setting and value.
func TestSystemd_Verify(t *testing.T) {
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not there")
	}
	// The program must exist; everything else stays as it is.
	program := filepath.Join(t.TempDir(), "annals")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(read(t, unit)), "/usr/local/bin/annals", program)
	file := filepath.Join(t.TempDir(), "annals.service")
	for name, c := range map[string]struct {
		text string
		good bool
	}{
		"the unit":        {text, true},
		"a wrong setting": {strings.Replace(text, "Restart=on-failure", "Restart=whenever", 1), false},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(verify, "verify", "--man=no", file).CombinedOutput()
		// It also complains of units of the machine: only lines about this file count.
		said := ""
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "annals.service") {
				said += line
			}
		}
		if good := said == ""; good != c.good {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}
