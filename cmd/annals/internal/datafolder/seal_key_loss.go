package datafolder

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/secret"
)

// SealKeyLoss is what seal keys that are not known leave closed. Missing and Known are names of keys. Accepted is true
// if a process starts with the known ones.
type SealKeyLoss struct {
	Missing  []string      `json:"missing"`
	Known    []string      `json:"known"`
	Lost     []secret.Loss `json:"lost"`
	Accepted bool          `json:"accepted"`
}

// LoseSealKey returns what a missing seal key leaves closed in a database, and with accept has processes start without
// it. Where no key is known, it then generates one. No server may run on the folder.
func (f Folder) LoseSealKey(ctx context.Context, address string, accept bool) (loss SealKeyLoss, err error) {
	known, err := f.KnownSealKeys()
	if err != nil {
		return loss, err
	}
	err = f.UseDatabase(ctx, address, func(db *pgxpool.Pool) error {
		if err := ops.Migrate(ctx, db, uuid.Nil); err != nil {
			return err
		}
		lost, missing, accepted, err := secret.Losses(ctx, db, known, SealedTables()...)
		if err != nil {
			return err
		}
		if accept && !accepted && len(missing) > 0 {
			if known, err = f.useSealKey(ctx, db, known); err != nil {
				return err
			}
			if err := checkpoints.KeepKeysOf(ctx, db, secret.Names(known)); err != nil {
				return err
			}
			accepted = true
		}
		none := []string{} // an empty list in JSON
		loss = SealKeyLoss{
			append(none, missing...), append(none, secret.Names(known)...), append([]secret.Loss{}, lost...), accepted,
		}
		return nil
	})
	return loss, err
}

// useSealKey makes the first of some keys that of a database.
func (f Folder) useSealKey(ctx context.Context, db *pgxpool.Pool, known [][]byte) ([][]byte, error) {
	if len(known) == 0 {
		key, err := f.NewSealKey()
		if err != nil {
			return nil, err
		}
		known = [][]byte{key}
	}
	sealer, err := secret.NewSealer(known...)
	if err != nil {
		return nil, err
	}
	return known, secret.WriteCheck(ctx, db, sealer)
}
