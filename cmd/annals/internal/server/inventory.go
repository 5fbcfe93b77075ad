package server

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
)

const (
	// inventoryEvery is the pause between two inventories. Their cost grows with the files and the audiences.
	inventoryEvery = time.Minute
	// maxFiles bounds the files of an inventory. The sizes of further files are left out.
	maxFiles = 1_000_000
)

// partsOfFolder are the parts of the data folder by the folders in it. The rest is part other.
var partsOfFolder = map[string]string{"log": "log", "recall": "index", "postgres": "postgres", "models": "models"}

// otherPart is what belongs to no part of its own.
const otherPart = "other"

// inventory counts what is stored, each minute.
type inventory struct {
	dir        string
	dataPoints func(context.Context) (int64, error) // nil without projections
	disk       func() (free, required uint64, ok bool)
	now        func() time.Time
	logger     *slog.Logger

	last atomic.Pointer[stored]
}

// stored is what one inventory found.
type stored struct {
	bytes map[string]int64
	// dataPoints is -1 if it is not known.
	dataPoints int64
}

func buildInventory(_ context.Context, s *Server) (adds, error) {
	cfg := s.cfg
	i := &inventory{dir: cfg.Data.Dir, disk: s.backpressure.disk, now: cfg.now, logger: cfg.Logger}
	if cfg.Roles.Has(RoleProjector) {
		i.dataPoints = s.read.work.dataPoints.CountAll
	}
	s.inventory = i
	s.registry.MustRegister(i)
	return adds{watch: []task{{"inventory", i.run}}}, nil
}

// run counts until the context ends.
func (i *inventory) run(ctx context.Context) error {
	for {
		i.count(ctx)
		if !sleep(ctx, inventoryEvery) {
			return nil
		}
	}
}

func (i *inventory) count(ctx context.Context) {
	s := stored{dataPoints: -1}
	var err error
	if s.bytes, err = folderBytes(ctx, i.dir); err != nil {
		i.warn(ctx, "size of the data folder", err)
	}
	if i.dataPoints != nil {
		if s.dataPoints, err = i.dataPoints(ctx); err != nil {
			s.dataPoints = -1
			i.logger.DebugContext(ctx, "data points are not counted", "err", err) // usual before the first start
		}
	}
	i.last.Store(&s)
}

func (i *inventory) warn(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		i.logger.WarnContext(ctx, "inventory failed, will retry", "what", what, "err", err)
	}
}

// folderBytes returns the sizes of the files of a data folder, by its parts. Files that are deleted meanwhile count
// as nothing.
func folderBytes(ctx context.Context, dir string) (map[string]int64, error) {
	bytes, files := map[string]int64{otherPart: 0}, 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !entry.Type().IsRegular():
			return nil
		}
		if files++; files > maxFiles {
			return fs.SkipAll
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		top, _, deeper := strings.Cut(inside, string(filepath.Separator))
		part := partsOfFolder[top]
		if part == "" || !deeper {
			part = otherPart
		}
		bytes[part] += info.Size()
		return nil
	})
	return bytes, err
}

var (
	dataBytesMetric = prometheus.NewDesc("annals_data_bytes",
		"Bytes of the files of the data folder, counted each minute.", []string{"part"}, nil)
	dataPointsMetric = prometheus.NewDesc("annals_data_points", "Live data points, counted each minute.", nil, nil)
	diskFreeMetric   = prometheus.NewDesc("annals_disk_free_bytes",
		"Bytes of the disk of the data folder that can still be written.", nil, nil)
	diskRequiredMetric = prometheus.NewDesc("annals_disk_required_bytes",
		"Bytes of that disk that must be free, or writes are refused.", nil, nil)
	backupAgeMetric = prometheus.NewDesc("annals_backup_age_seconds",
		"Age of the last backup that annals backup made of this data folder.", nil, nil)
)

// Describe implements prometheus.Collector, as that of stateMetrics does.
func (i *inventory) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (i *inventory) Collect(out chan<- prometheus.Metric) {
	gauge := func(of *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, labels...)
	}
	if s := i.last.Load(); s != nil {
		for part, size := range s.bytes {
			gauge(dataBytesMetric, float64(size), part)
		}
		if s.dataPoints >= 0 {
			gauge(dataPointsMetric, float64(s.dataPoints))
		}
	}
	if free, required, ok := i.disk(); ok {
		gauge(diskFreeMetric, float64(free))
		gauge(diskRequiredMetric, float64(required))
	}
	last, ok, err := datafolder.LastBackup(i.dir)
	if err != nil {
		i.logger.Warn("record of the last backup cannot be read", "err", err)
	}
	if ok {
		gauge(backupAgeMetric, max(i.now().Sub(last).Seconds(), 0))
	}
}
