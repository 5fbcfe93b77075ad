package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/internal/secret"
)

// The names in the credentials file beside the addresses.
const (
	projectKeyName    = "ANNALS_PROJECT_KEY"
	managementKeyName = "ANNALS_MANAGEMENT_KEY"
)

// openLog makes the log ready: an empty one gets its organization, project and keys. The keys are drawn, written and fsynced
// before the first append decides, so that no crash leaves a log whose keys nobody has.
func openLog(ctx context.Context, l *commands.Log, s *Settings, urls PublicURLs, hashKey []byte) error {
	values, err := readCredentials(s.DataDir)
	if err != nil {
		return err
	}
	registered, err := commands.Registered(ctx, l)
	if err != nil {
		return fmt.Errorf("read the registry: %w", err)
	}
	if !registered {
		if err := drawKeys(values); err != nil {
			return err
		}
	}
	if len(values) > 0 {
		values["ANNALS_API_URL"], values["ANNALS_CONSOLE_URL"], values["ANNALS_AUTH_URL"] = urls.API, urls.Console, urls.Auth
		if err := writeCredentials(s.DataDir, values); err != nil {
			return err
		}
	}
	first := commands.FirstStart{Organization: "Annals", HashKey: hashKey, At: time.Now().UTC().Truncate(time.Microsecond)}
	if key := values[managementKeyName]; key != "" {
		first.ManagementKey = secret.Describe(key)
	}
	if key := values[projectKeyName]; key != "" {
		first.ProjectKey = secret.Describe(key)
	}
	return explainHashKey(commands.Bootstrap(ctx, l, first), s)
}

// drawKeys draws the keys that the file does not hold: one that a crash left behind is used again.
func drawKeys(values map[string]string) error {
	for name, draw := range map[string]func() (secret.Key, error){
		projectKeyName: secret.NewProjectKey, managementKeyName: secret.NewManagementKey,
	} {
		if values[name] != "" {
			continue
		}
		key, err := draw()
		if err != nil {
			return err
		}
		values[name] = key.Clear
	}
	return nil
}

// writeCredentials writes the file whole, readable by this user alone, where it does not say the same already.
func writeCredentials(dataDir string, values map[string]string) error {
	var b strings.Builder
	for _, name := range []string{"ANNALS_API_URL", "ANNALS_CONSOLE_URL", "ANNALS_AUTH_URL", projectKeyName, managementKeyName} {
		if values[name] != "" {
			fmt.Fprintf(&b, "%s=%s\n", name, values[name])
		}
	}
	path := filepath.Join(dataDir, CredentialsFile)
	if old, err := os.ReadFile(path); err == nil && string(old) == b.String() {
		return nil
	}
	return writeDurably(path, []byte(b.String()))
}

// writeDurably replaces a file so that after a crash it is either the old one or the new one, whole. Its mode is 0600.
func writeDurably(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, openErr := os.Open(dir)
	if openErr != nil {
		return openErr
	}
	return errors.Join(d.Sync(), d.Close())
}
