from tensorcomp.reports.save import save_report as save_report
