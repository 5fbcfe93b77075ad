package main

import (
	"context"
	"fmt"
	"os"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/internal/minilm"
)

// EmbeddingsCmd is "annals embeddings".
type EmbeddingsCmd struct {
	Install InstallEmbeddingsCmd `cmd:"" help:"Install the built-in embedding model in the data folder."`
	Status  EmbeddingsStatusCmd  `cmd:"" help:"Print how far the vectors of the embedding model are made."`
}

// InstallEmbeddingsCmd is "annals embeddings install".
type InstallEmbeddingsCmd struct {
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the service."`
	Source  string `arg:"" name:"file" help:"The jar with the model, as make model fetches it, or a folder with what is in it."`
	JSON    bool   `name:"json" help:"Print the result as one JSON value."`
}

// Run installs the model. It changes nothing unless the files are the published ones.
func (c *InstallEmbeddingsCmd) Run(ctx context.Context, env *Env) error {
	dir := datafolder.Folder{Dir: c.DataDir}.Model()
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil { // as the service makes it
		return fmt.Errorf("make the data folder: %w", err)
	}
	if err := minilm.Install(ctx, c.Source, dir); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, map[string]string{"dir": dir})
	}
	_, err := fmt.Fprintf(env.Stdout, "installed in %s; the next start uses it, unless ANNALS_EMBEDDINGS is none\n", dir)
	return err
}

// EmbeddingsStatusCmd is "annals embeddings status".
type EmbeddingsStatusCmd struct {
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running service."`
	JSON    bool   `name:"json" help:"Print one JSON value."`
}

// Run asks the server that runs on the data folder.
func (c *EmbeddingsStatusCmd) Run(ctx context.Context, env *Env) error {
	p, err := operatorapi.EmbeddingProgress.Call(ctx, operatorapi.Dial(c.DataDir), operatorapi.None{})
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(env.Stdout, p)
	case p.Model == "":
		_, err = fmt.Fprintln(env.Stdout, "no embedding model: recall searches by words alone")
	default:
		_, err = fmt.Fprintf(env.Stdout, "%s has embedded %d of %d data points; recall uses %s\n",
			p.Model, p.Embedded, p.Captured, p.Live)
	}
	return err
}
