// Package annals holds the pages of the tree, so that the console serves them.
package annals

import "embed"

// Pages are the Markdown of the tree, with the files that it links to.
//
//go:embed *.md LICENSE docs deploy/*.md deploy/*.yaml deploy/Dockerfile deploy/clients/main_job.*
//go:embed deploy/prometheus/alerts.yaml deploy/systemd/annals.service deploy/helm/annals/values.yaml
//go:embed domain/lexicon/wordnet/LICENSE domain/lexicon/stopwords/LICENSE
var Pages embed.FS
