from tensorcomp.reports.save_report import save_report as save_report
