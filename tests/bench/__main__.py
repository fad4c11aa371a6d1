"""All benchmarks, one after the other: `make bench`."""

from tests.bench import bench_claims, bench_declaring, bench_reads, bench_runjob, bench_runner

for measure in (bench_runner, bench_runjob, bench_reads, bench_claims, bench_declaring):
    measure.main()
