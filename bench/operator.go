package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The names in the credentials file of a data folder.
const (
	credentialsFile   = "credentials.env"
	managementKeyName = "ANNALS_MANAGEMENT_KEY"
	ownerEmailName    = "ANNALS_OWNER_EMAIL"
	ownerPasswordName = "ANNALS_OWNER_PASSWORD"
)

// Credentials reads the lines of the credentials file of a data folder, an empty map without the file.
func Credentials(dataDir string) (map[string]string, error) {
	values := map[string]string{}
	text, err := os.ReadFile(filepath.Join(dataDir, credentialsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return values, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		name, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if ok && !strings.HasPrefix(name, "#") {
			values[name] = strings.Trim(value, `'"`)
		}
	}
	return values, lines.Err()
}

// hashKey reads the hash key of a data folder.
func hashKey(dataDir string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(dataDir, "hash.key"))
	if err != nil {
		return nil, fmt.Errorf("read the hash key: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("read the hash key: %w", err)
	}
	return key, nil
}

// FindService returns the program of the service: the given one, else annals in the folder of this program, else annals
// in the PATH.
func FindService(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "annals")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	found, err := exec.LookPath("annals")
	if err != nil {
		return "", fmt.Errorf("find the service: %w: name it with --service", err)
	}
	return found, nil
}

// operate runs a command of the service as the operator of a data folder, and decodes its JSON into out.
func operate(ctx context.Context, program, dataDir string, out any, args ...string) error {
	return operateWith(ctx, program, dataDir, "", out, args...)
}

// operateWith is operate with a project key, which other users of the machine do not see in the environment.
func operateWith(ctx context.Context, program, dataDir, key string, out any, args ...string) error {
	args = append(args, "--json", "--data-dir", dataDir)
	command := exec.CommandContext(ctx, program, args...)
	if key != "" {
		command.Env = append(os.Environ(), "ANNALS_PROJECT_KEY="+key)
	}
	answer, err := command.Output()
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return fmt.Errorf("%s", strings.TrimPrefix(strings.TrimSpace(string(exit.Stderr)), "annals: "))
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("decode the output of annals %s: %w", args[0], err)
	}
	return nil
}
