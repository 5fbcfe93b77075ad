package datafolder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/console/agents"
	"github.com/annals-project/annals/console/authserver"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/schemas"
	"github.com/annals-project/annals/internal/sealedtables"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/tokens"
)

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
