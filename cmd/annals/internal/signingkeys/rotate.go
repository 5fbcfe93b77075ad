// Package signingkeys is the group "annals signing-keys".
package signingkeys

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
)

// Cmd is the group "annals signing-keys".
type Cmd struct {
	Rotate RotateCmd `cmd:"" help:"Make a new key, which signs after 5 s. Tokens of the key before it stay valid; those of older keys end. So two rotations end all tokens that were signed before."`
}

// RotateCmd is "annals signing-keys rotate".
type RotateCmd struct {
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value."`
}

// Run makes the key.
func (c *RotateCmd) Run(ctx context.Context, to io.Writer) error {
	left, err := operatorapi.RotateSigningKeys.Call(ctx, operatorapi.Dial(c.DataDir), operatorapi.None{})
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(to).Encode(left)
	}
	for i, key := range left {
		does := "verifies alone"
		if i == 0 {
			does = "signs after 5 s"
		}
		made := key.CreatedAt.Local().Format(time.DateTime)
		if _, err := fmt.Fprintf(to, "%s, made %s, %s\n", key.ID, made, does); err != nil {
			return err
		}
	}
	return nil
}
