// Package datafolder reads and writes the files of a data folder that are not in the log: the
// credentials, the hash key and the seal keys. It also makes and restores backups of a folder.
package datafolder

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/console/agents"
	"github.com/annals-project/annals/console/authserver"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/internal/fsx"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/schemas"
	"github.com/annals-project/annals/internal/sealedtables"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/tokens"
)

// Folder is a data folder, with the keys that the settings give.
type Folder struct {
	Dir string
	// HashKey is a configured hash key as base64 or hex, "" to use the key of the folder.
	HashKey string
	// SealKey holds configured seal keys as base64 or hex, separated by commas, "" for none.
	SealKey string
	// SchemaPrefix begins the names of the schemas in the database of the folder; it may be empty.
	SchemaPrefix string
}

// Model is the folder of the built-in embedding model.
func (f Folder) Model() string { return filepath.Join(f.Dir, "models", "all-MiniLM-L6-v2-q") }

// SecretBytes is the length of a hash key and of a seal key.
const SecretBytes = 32

// DecodeSecret reads a key of SecretBytes bytes from base64 or hex. It returns nil for an empty string.
func DecodeSecret(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	for _, decode := range []func(string) ([]byte, error){
		hex.DecodeString, base64.StdEncoding.DecodeString, base64.RawStdEncoding.DecodeString,
		base64.URLEncoding.DecodeString, base64.RawURLEncoding.DecodeString,
	} {
		if b, err := decode(text); err == nil && len(b) == SecretBytes {
			return b, nil
		}
	}
	return nil, fmt.Errorf("is not %d bytes as base64 or hex: openssl rand -base64 %d makes one", SecretBytes, SecretBytes)
}

// CredentialsFile is the name of the file in the data folder that the first start writes.
const CredentialsFile = "credentials.env"

// The names of the keys in the credentials file.
const (
	ProjectKeyName    = "ANNALS_PROJECT_KEY"
	ManagementKeyName = "ANNALS_MANAGEMENT_KEY"
	// The owner that a start made signs in with these, until a person takes the account over.
	OwnerEmailName    = "ANNALS_OWNER_EMAIL"
	OwnerPasswordName = "ANNALS_OWNER_PASSWORD"
)

// ReadCredentials reads the KEY=VALUE lines of the credentials file of a data folder. It returns an empty
// map without the file. A value may be in single or double quotes.
func ReadCredentials(dataDir string) (map[string]string, error) {
	f, err := os.Open(filepath.Join(dataDir, CredentialsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	defer func() { _ = f.Close() }()
	values := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		values[name] = unquote(value)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	return values, nil
}

func unquote(value string) string {
	for _, q := range []string{`'`, `"`} {
		if len(value) >= 2 && strings.HasPrefix(value, q) && strings.HasSuffix(value, q) {
			return value[1 : len(value)-1]
		}
	}
	return value
}

// WriteCredentials replaces the credentials file if its content changes. Only the owner can read it.
func WriteCredentials(dataDir string, values map[string]string) error {
	var b strings.Builder
	for _, name := range []string{
		"ANNALS_API_URL", "ANNALS_CONSOLE_URL", "ANNALS_AUTH_URL", ProjectKeyName,
		ManagementKeyName, OwnerEmailName, OwnerPasswordName,
	} {
		if values[name] != "" {
			fmt.Fprintf(&b, "%s=%s\n", name, values[name])
		}
	}
	path := filepath.Join(dataDir, CredentialsFile)
	if old, err := os.ReadFile(path); err == nil && string(old) == b.String() {
		return nil
	}
	return fsx.WriteFile(path, []byte(b.String()))
}

// Credentials is the credentials file of a data folder.
type Credentials struct{ Dir string }

// Path returns the path of the file.
func (c Credentials) Path() string { return filepath.Join(c.Dir, CredentialsFile) }

// ReplaceManagementKey implements tenancy.CredentialsFile.
func (c Credentials) ReplaceManagementKey(isFormer func(hash string) bool, clear string) (replaced bool, err error) {
	values, err := ReadCredentials(c.Dir)
	if err != nil {
		return false, err
	}
	stored := values[ManagementKeyName]
	if stored == "" || !isFormer(secret.HashText(stored)) {
		return false, nil
	}
	values[ManagementKeyName] = clear
	return true, WriteCredentials(c.Dir, values)
}

// RefuseBackup returns an error if the folder is a backup: what opens the log in it would write a new one there, and a
// service would have other keys and nothing of what is backed up.
func (f Folder) RefuseBackup() error {
	_, err := os.Stat(filepath.Join(f.Dir, BackupList))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("data folder %s is a file, or is below one: name a folder with ANNALS_DATA_DIR (--data-dir)", f.Dir)
	case err != nil:
		return fmt.Errorf("read the data folder that ANNALS_DATA_DIR (--data-dir) names: %w", err)
	}
	return fmt.Errorf("%s is a backup, not a data folder: annals restore %q --data-dir DIR makes a data folder of it",
		f.Dir, f.Dir)
}

// IsNew reports whether no service has written a log or keys into the folder yet.
func (f Folder) IsNew() bool {
	for _, name := range []string{"log", HashKeyFile, CredentialsFile} {
		if _, err := os.Stat(filepath.Join(f.Dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// LogIDFile holds the id of the log whose keys are in the data folder. It is in no backup.
const LogIDFile = "log.id"

// RecordLog records the log whose keys are in the folder.
func (f Folder) RecordLog(logID uuid.UUID) error {
	recorded, err := f.recordedLog()
	if err != nil || recorded == logID {
		return err
	}
	return fsx.WriteFile(filepath.Join(f.Dir, LogIDFile), []byte(logID.String()+"\n"))
}

// CheckLog returns an error if the folder has the keys of another log than the one of the event store; uuid.Nil is an
// empty event store.
func (f Folder) CheckLog(logID uuid.UUID) error {
	recorded, err := f.recordedLog()
	if err != nil || recorded == logID {
		return err
	}
	const cure = "connect the event store of that log, or use another data folder for"
	if recorded != uuid.Nil && logID != uuid.Nil {
		return fmt.Errorf("data folder %s is of log %s, and the event store holds log %s: %s this one",
			f.Dir, recorded, logID, cure)
	}
	if recorded != uuid.Nil {
		return fmt.Errorf("the event store is empty, and data folder %s is of log %s: %s a new log", f.Dir, recorded, cure)
	}
	return nil
}

// recordedLog returns the log that RecordLog recorded, uuid.Nil for none.
func (f Folder) recordedLog() (uuid.UUID, error) {
	path := filepath.Join(f.Dir, LogIDFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return uuid.Nil, nil
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("read the id of the log: %w", err)
	}
	id, err := uuid.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return uuid.Nil, fmt.Errorf("%s does not hold the id of a log: remove it, and the next start writes it", path)
	}
	return id, nil
}

// CheckUnused returns an error if the credentials file, which an interrupted first start may have written, names the
// owner of an organization: then a log was complete once.
func (f Folder) CheckUnused() error {
	values, err := ReadCredentials(f.Dir)
	if err != nil || values[OwnerEmailName] == "" {
		return err
	}
	return fmt.Errorf("the event store is empty, and %s has the owner of an organization of another log: connect the "+
		"event store of that log, or use another data folder for a new log", filepath.Join(f.Dir, CredentialsFile))
}

// SignInsFile is how people and agents sign in, sealed: in a backup, and in a restored data folder until its first
// start.
const SignInsFile = "sign-ins.sealed"

// restoredFiles are the files of a backup besides the log. All but the first may be missing.
func restoredFiles() []string {
	return []string{HashKeyFile, SealKeyFile, CredentialsFile, SignInsFile}
}

// hasPostgres reports whether the folder ever had a Postgres of its own.
func (f Folder) hasPostgres() bool {
	_, err := os.Stat(filepath.Join(f.Dir, "postgres.lock"))
	return err == nil
}

// dumpSignIns reads the Postgres of the folder for a backup while no server runs.
func (f Folder) dumpSignIns(ctx context.Context, sealKeys [][]byte, to io.Writer) (err error) {
	sealer, err := secret.NewSealer(sealKeys...)
	if err != nil {
		return err
	}
	return f.UseDatabase(ctx, embedded, func(db *pgxpool.Pool) error {
		if err := requireOps(ctx, db); err != nil {
			return err
		}
		if err := secret.CheckKeys(ctx, db, sealKeys); err != nil { // nobody could use the backup
			return f.ExplainSealKey(err)
		}
		return DumpSignIns(ctx, db, sealer, to)
	})
}

// requireOps returns an error for a database without schema ops: a backup of it would lack how people sign in.
func requireOps(ctx context.Context, db *pgxpool.Pool) error {
	var exists bool
	if err := db.QueryRow(ctx, `select to_regnamespace('ops') is not null`).Scan(&exists); err != nil {
		return fmt.Errorf("look for schema ops: %w", err)
	}
	if !exists {
		return fmt.Errorf("the database has no schema %s: is ANNALS_POSTGRES_SCHEMA_PREFIX that of the service?",
			pg.SchemaPrefixOf(db).Name(schemas.Ops))
	}
	return nil
}

// embedded is the address that stands for the Postgres of the folder.
const embedded = "embedded"

// UseDatabase opens a database while no server runs on the folder: that at an address, or the one of the folder, whose
// Postgres it starts and stops.
func (f Folder) UseDatabase(ctx context.Context, address string, do func(*pgxpool.Pool) error) (err error) {
	if address == embedded {
		if !f.hasPostgres() {
			return fmt.Errorf("data folder %s holds no database (is --data-dir right?)", f.Dir)
		}
		server, err := pg.Start(ctx, pg.Config{DataDir: f.Dir})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		address = server.URL()
	}
	db, err := pg.OpenPool(ctx, address, pg.SchemaPrefix(f.SchemaPrefix))
	if err != nil {
		return err
	}
	defer db.Close()
	return do(db)
}

// tables are those whose rows are not in the log and that a backup holds.
func tables() []sealedtables.Table {
	return slices.Concat(signin.Tables(), tokens.Tables(), authserver.Tables(), agents.Tables())
}

// SealedTables are the tables of schema ops that hold sealed values for longer than minutes.
func SealedTables() []secret.Table {
	return append(signin.SealedTables(), secret.VaultTable(), tokens.SealedTable(), checkpoints.SealedTable())
}

// DumpSignIns writes how people and agents sign in, sealed.
func DumpSignIns(ctx context.Context, db *pgxpool.Pool, sealer *secret.Sealer, to io.Writer) error {
	return sealedtables.Dump(ctx, db, sealer, to, tables()...)
}

// LoadSignIns adds what DumpSignIns wrote.
func LoadSignIns(ctx context.Context, db *pgxpool.Pool, sealer *secret.Sealer, from io.Reader) error {
	return sealedtables.Load(ctx, db, sealer, from, tables()...)
}

// TakeSignIns has load read the file of a restored folder, and then removes it. Without the file it does nothing.
func (f Folder) TakeSignIns(load func(io.Reader) error) error {
	path := filepath.Join(f.Dir, SignInsFile)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("restore how people sign in: %w", err)
	}
	if err := errors.Join(load(file), file.Close()); err != nil {
		return err
	}
	return os.Remove(path)
}
