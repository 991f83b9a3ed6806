from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("kumiko", "0002_job_stat"),
    ]

    operations = [
        migrations.AddField(
            model_name="jobrun",
            name="deferrals",
            field=models.PositiveIntegerField(db_default=0, default=0, verbose_name="deferrals"),
        ),
        migrations.AddField(
            model_name="jobrun",
            name="resume_at",
            field=models.DateTimeField(blank=True, null=True, verbose_name="resumes"),
        ),
    ]
